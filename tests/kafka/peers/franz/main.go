// A member that is franz-go. A line of standard input is a command; its response is a line of standard output.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What the callbacks, which run on goroutines of the client's own, have said.
type member struct {
	sync.Mutex
	owned map[int32]bool
	lost  []string

	uncommitted bool // only of the turns: the last commit is to be tried again
}

func (m *member) assigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	m.Lock()
	defer m.Unlock()
	for _, numbers := range partitions {
		for _, number := range numbers {
			m.owned[number] = true
		}
	}
}

func (m *member) gone(partitions map[string][]int32, lost bool) {
	m.Lock()
	defer m.Unlock()
	for _, numbers := range partitions {
		for _, number := range numbers {
			delete(m.owned, number)
			if lost {
				m.lost = append(m.lost, strconv.Itoa(int(number)))
			}
		}
	}
}

func (m *member) response(seen []string) string {
	m.Lock()
	defer m.Unlock()
	owned := make([]string, 0, len(m.owned))
	for number := range m.owned {
		owned = append(owned, strconv.Itoa(int(number)))
	}
	sort.Strings(owned)
	lost := m.lost
	m.lost = nil
	return strings.Join(seen, ",") + "|" + strings.Join(owned, ",") + "|" + strings.Join(lost, ",")
}

func balancer(name string) kgo.GroupBalancer {
	switch name {
	case "range":
		return kgo.RangeBalancer()
	case "roundrobin":
		return kgo.RoundRobinBalancer()
	case "sticky":
		return kgo.StickyBalancer()
	default:
		return kgo.CooperativeStickyBalancer()
	}
}

func balancers(names string) []kgo.GroupBalancer {
	var found []kgo.GroupBalancer
	for _, name := range strings.Split(names, ",") {
		found = append(found, balancer(name))
	}
	return found
}

// A commit behind a join that is under way gets its response when that ends, which may wait for another's turn: so it is
// given up soon, and the next turn tries again, or the revoke of its partition. False where it is to be tried again.
func committed(client *kgo.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	err := client.CommitUncommittedOffsets(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "commit:", err)
	}
	return !errors.Is(err, kerr.RebalanceInProgress) && !errors.Is(err, context.DeadlineExceeded)
}

// Between a member's join and its sync, the broker refuses each commit: a revoke tries ten times.
func revoked(client *kgo.Client) {
	for tries := 0; !committed(client) && tries < 10; tries++ {
		time.Sleep(50 * time.Millisecond)
	}
}

func turn(client *kgo.Client, m *member) string {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	records := client.PollRecords(ctx, 100).Records()
	var seen []string
	for _, record := range records {
		seen = append(seen, fmt.Sprintf("%d:%d", record.Partition, record.Offset))
	}
	if len(records) > 0 || m.uncommitted { // no rebalance is let through before AllowRebalance
		m.uncommitted = !committed(client)
	}
	client.AllowRebalance()
	return m.response(seen)
}

func main() {
	servers, group, topic, name, assignor := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	session, err := strconv.Atoi(os.Args[6])
	if err != nil {
		panic(err)
	}
	m := &member{owned: map[int32]bool{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ClientID(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(balancers(assignor)...),
		kgo.HeartbeatInterval(heartbeat()),
		kgo.SessionTimeout(time.Duration(session)*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.OnPartitionsAssigned(m.assigned),
		kgo.OnPartitionsRevoked(func(_ context.Context, c *kgo.Client, p map[string][]int32) {
			revoked(c)
			m.gone(p, false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { m.gone(p, true) }),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
	)
	if err != nil {
		panic(err)
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		if commands.Text() == "close" {
			client.CloseAllowingRebalance()
			return
		}
		fmt.Println(turn(client, m))
	}
}

// heartbeat is the interval: 100 ms, or what PEER_HEARTBEAT_MS says.
func heartbeat() time.Duration {
	if ms, err := strconv.Atoi(os.Getenv("PEER_HEARTBEAT_MS")); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	return 100 * time.Millisecond
}
