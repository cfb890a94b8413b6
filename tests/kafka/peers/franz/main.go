// A member that is franz-go. A line of standard input is a command; its answer is a line of standard output.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What the callbacks, which run on goroutines of the client's own, have said.
type member struct {
	sync.Mutex
	owned map[int32]bool
	lost  []string
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

func (m *member) answer(seen []string) string {
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

// A commit behind a join that is under way is answered when that ends, which may wait for another's turn: so it is
// given up soon, and made up for when its partition is revoked, or by the next.
func commit(send func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if err := send(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "commit:", err)
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
	if len(records) > 0 { // no rebalance is let through before AllowRebalance
		commit(func(ctx context.Context) error { return client.CommitRecords(ctx, records...) })
	}
	client.AllowRebalance()
	return m.answer(seen)
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
			commit(c.CommitUncommittedOffsets)
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
