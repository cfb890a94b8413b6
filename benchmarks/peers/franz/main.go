// franz-go in the benchmark: prints what benchmarks/clients.py prints.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// Of the process, as the system counts it.
func peakMegabytes() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kilobytes, _ := strconv.ParseFloat(fields[1], 64)
			return kilobytes / 1024
		}
	}
	return 0
}

func number(place int) int64 {
	found, err := strconv.ParseInt(os.Args[place], 10, 64)
	if err != nil {
		panic(err)
	}
	return found
}

func seconds(place int) float64 {
	found, err := strconv.ParseFloat(os.Args[place], 64)
	if err != nil {
		panic(err)
	}
	return found
}

func main() {
	servers, topic := os.Args[1], os.Args[2]
	warmRows, warmSeconds, mostRows, mostSeconds := number(3), seconds(4), number(5), seconds(6)
	offsets := map[int32]kgo.Offset{}
	for each := int32(0); each < int32(number(7)); each++ {
		offsets[each] = kgo.NewOffset().AtStart()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(servers),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchMaxPartitionBytes(int32(number(8))),
		kgo.FetchMaxBytes(int32(number(9))),
	}
	if authority := os.Args[10]; authority != "" {
		pem, err := os.ReadFile(authority)
		if err != nil {
			panic(err)
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(pem)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	var rows, warm, bytes int64 = 0, -1, 0
	var first, begun time.Time
	var before, startUpCpu float64
	for {
		fetches := client.PollFetches(context.Background())
		fetches.EachRecord(func(each *kgo.Record) {
			bytes += int64(len(each.Key) + len(each.Value))
			rows++
		})
		now := time.Now()
		if rows > 0 && first.IsZero() {
			first, startUpCpu = now, cpu()
		}
		if warm < 0 && !first.IsZero() && (rows >= warmRows || now.Sub(first).Seconds() >= warmSeconds) {
			warm, begun, before = rows, now, cpu()
		} else if warm >= 0 && (rows >= mostRows || now.Sub(begun).Seconds() >= mostSeconds) {
			fmt.Printf("{\"rows\": %d, \"seconds\": %f, \"cpu\": %f, \"bytes\": %d, \"first at\": %f, \"start-up cpu\": %f, \"peak_mb\": %f}\n",
				rows-warm, now.Sub(begun).Seconds(), cpu()-before, bytes, float64(first.UnixMilli())/1e3, startUpCpu, peakMegabytes())
			os.Exit(0)
		}
	}
}
