//go:build linux

package service_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/runlevel/runlevel/internal/updates/report"
	"github.com/runlevel/runlevel/internal/updates/service"
)

// benchFolder names the folder that a child process serves. Its memory and time are measured without those of clients.
const benchFolder = "RUNLEVEL_UPDATES_BENCH_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(benchFolder); folder != "" {
		if err := serveFolder(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveFolder(folder string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := service.New(service.Options{
		Folder: folder, Reports: filepath.Join(folder, "reports.jsonl"), Now: time.Now, MaxAge: time.Minute,
		Log: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return s.Serve(ctx, listener, filepath.Join(folder, "raw/tls.crt"), filepath.Join(folder, "raw/tls.key"))
}

// benchFiles returns graph data with 400 versions, and edges from the last 18 to each.
func benchFiles(b *testing.B) map[string]string {
	files := graphFiles("maxFailures: 100\nclusters: 10000\nprogressDeadline: 2h\n")
	versions := []string{"1.4.0", "1.4.1"}
	for i := range 400 {
		version := fmt.Sprintf("1.%d.%d", 10+i/20, i%20)
		versions = append(versions, version)
		files["releases/"+version+".yaml"] = fmt.Sprintf("version: %s\nurl: https://shop.example/%[1]s\nprevious: [%s]\n"+
			"image: registry.example/shop@sha256:%064x\n", version, strings.Join(versions[max(0, i-18):i], ","), i)
	}
	files["channels/stable.yaml"] = "name: stable\nversions: [" + strings.Join(versions, ",") + "]\n"
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	files["raw/tls.crt"], files["raw/tls.key"] = string(certificate), string(key)
	return files
}

// BenchmarkFleet serves 10,000 clusters that poll every three minutes, each over a connection of its own, and have
// reported an update: 56 requests a second, in the paced benchmark. The other one has as many requests as possible.
// cpu-% is the share of one processor that the service uses, rss-MB its most memory.
func BenchmarkFleet(b *testing.B) {
	folder := b.TempDir()
	writeFiles(b, folder, benchFiles(b))
	log, _, err := report.Open(filepath.Join(folder, "reports.jsonl"), nil)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	for i := range 2 * fleet {
		condition := []report.Condition{report.Began, report.Succeeded}[i/fleet]
		r := &report.Report{ID: fmt.Sprintf("cluster-%016d", i%fleet), Version: newest, Condition: condition, Time: now}
		if _, err := log.Append(report.Entry{Received: now, Address: "10.0.0.7", Report: r}); err != nil {
			b.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("paced", func(b *testing.B) {
		const clients, rate, length = 28, 56, 10 * time.Second
		client := newBenchClient(true)
		measure(b, folder, func(address string) int64 {
			var all sync.WaitGroup
			count := b.N * rate * int(length/time.Second)
			for i := range clients {
				all.Go(func() {
					pace := time.NewTicker(time.Second * clients / rate)
					defer pace.Stop()
					for j := range count / clients {
						<-pace.C
						client.get(b, address, j*clients+i)
					}
				})
			}
			all.Wait()
			return int64(count)
		})
	})
	b.Run("most", func(b *testing.B) {
		client := newBenchClient(false)
		measure(b, folder, func(address string) int64 {
			var count atomic.Int64
			b.RunParallel(func(loop *testing.PB) {
				for loop.Next() {
					client.get(b, address, int(count.Add(1)))
				}
			})
			return count.Load()
		})
	})
}

type benchClient struct{ http.Client }

func newBenchClient(isNew bool) *benchClient {
	return &benchClient{http.Client{Transport: &http.Transport{
		DisableKeepAlives: isNew, DisableCompression: true, MaxIdleConnsPerHost: 100,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}}
}

func (c *benchClient) get(b *testing.B, address string, i int) {
	url := fmt.Sprintf("https://%s/graph?channel=stable&arch=amd64&version=1.12.3&id=cluster-%d", address, i%fleet)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Error(err)
		return
	}
	request.Header.Set("Accept-Encoding", "gzip")
	answer, err := c.Do(request)
	if err != nil {
		b.Error(err)
		return
	}
	defer answer.Body.Close()
	if size, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK || size < 1000 {
		b.Errorf("%s: %d bytes, %v", answer.Status, size, err)
	}
}

// measure runs a load on a service in a process of its own.
func measure(b *testing.B, folder string, load func(address string) int64) {
	b.Helper()
	command := exec.CommandContext(b.Context(), os.Args[0])
	command.Env = append(os.Environ(), benchFolder+"="+folder)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	before := processorTime(b, command.Process.Pid)
	b.ResetTimer()
	count := load(strings.TrimSpace(address))
	b.StopTimer()
	used := processorTime(b, command.Process.Pid) - before
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		b.Error(err)
	}
	usage := command.ProcessState.SysUsage().(*syscall.Rusage)
	b.ReportMetric(float64(usage.Maxrss)/1024, "rss-MB")
	b.ReportMetric(100*float64(used)/float64(b.Elapsed()), "cpu-%")
	b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "requests/s")
}

// processorTime returns the time that a process has used.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / 100) // a tick of the kernel
}
