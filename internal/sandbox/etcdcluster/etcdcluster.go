// Package etcdcluster runs a real etcd cluster on this machine: each member is a process at a loopback address of its
// own, with TLS and client certificates, as on the machines of a control plane.
//
// It stores nothing for longer than it runs: nothing is synced to the disk. It is for the demo and for tests of what
// changes the members of etcd.
//
// New is the call to start from, then Bootstrap. Members join by Join, as an etcd operator has them do on a new
// machine, and end by Kill, as with their machine. authority.go has the certificates.
package etcdcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
)

// patience is how long the first members have to find each other.
const patience = 2 * time.Minute

// Options set how a cluster runs.
type Options struct {
	Program string // etcd's
	Folder  string // of all files
	// Front, if there is one, puts a server in front of a member before it starts: clients find that one at ClientURL,
	// and it finds the member at the URL that it is given. The member is ended by Kill, its front by the caller.
	Front func(number int, member string) error
}

// A Cluster is an etcd cluster that runs on this machine.
type Cluster struct {
	Options
	ClientFiles TLSFiles // a certificate of a client

	network   string // the first three bytes of all addresses
	authority *authority
	client    *http.Client

	mu      sync.Mutex
	running map[int]*process // by the number of the member
}

// A process is that of a member.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

// New prepares a cluster at addresses that no other one on this machine is likely to have.
func New(o Options) (*Cluster, error) {
	authority, err := newAuthority(o.Folder)
	if err != nil {
		return nil, fmt.Errorf("make certificates for etcd: %w", err)
	}
	c := &Cluster{
		Options: o, authority: authority, running: map[int]*process{},
		network: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)),
	}
	if c.ClientFiles, err = authority.sign("client", ""); err != nil {
		return nil, fmt.Errorf("make certificates for etcd: %w", err)
	}
	config, err := c.ClientTLS()
	if err != nil {
		return nil, err
	}
	c.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}
	return c, nil
}

// Bootstrap starts the first members, and waits until they serve.
func (c *Cluster) Bootstrap(ctx context.Context, numbers ...int) error {
	var initial []string
	for _, number := range numbers {
		initial = append(initial, name(number)+"="+c.peerURL(number))
	}
	for _, number := range numbers {
		if err := c.start(number, initial, "new"); err != nil {
			return err
		}
	}
	var refused error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			_, refused = c.Members(ctx) // which takes a quorum
			return refused == nil, nil
		})
	if err != nil {
		return fmt.Errorf("etcd's first members do not serve; their logs are in %s: %w", c.Folder, refused)
	}
	return nil
}

// Address returns where the member with a number is, or will be.
func (c *Cluster) Address(number int) string { return fmt.Sprint(c.network, number) }

// ClientURL returns where clients find a member.
func (c *Cluster) ClientURL(number int) string { return "https://" + c.Address(number) + ":2379" }

func (c *Cluster) peerURL(number int) string { return "https://" + c.Address(number) + ":2380" }

// memberURL returns where a member itself serves clients.
func (c *Cluster) memberURL(number int) string {
	if c.Front == nil {
		return c.ClientURL(number)
	}
	return "https://" + c.Address(number) + ":12379"
}

func name(number int) string { return fmt.Sprintf("etcd-%d", number) }

// Join adds a member as a learner unless it is in the list, and starts it.
func (c *Cluster) Join(ctx context.Context, number int) error {
	isMember := func(m Member) bool { return m.PeerURLs[0] == c.peerURL(number) }
	members, err := c.Members(ctx)
	if err == nil && !slices.ContainsFunc(members, isMember) {
		if err = c.addLearner(ctx, c.peerURL(number)); err == nil {
			members, err = c.Members(ctx)
		}
	}
	if err != nil {
		return err
	}
	var initial []string
	for _, member := range members {
		if isMember(member) {
			member.Name = name(number)
		}
		initial = append(initial, member.Name+"="+member.PeerURLs[0])
	}
	return c.start(number, initial, "existing")
}

// start starts the process of a member.
func (c *Cluster) start(number int, initial []string, state string) error {
	own := name(number)
	files, err := c.authority.sign(own, c.Address(number))
	if err != nil {
		return fmt.Errorf("make a certificate for %s: %w", own, err)
	}
	if c.Front != nil {
		if err := c.Front(number, c.memberURL(number)); err != nil {
			return fmt.Errorf("put a server in front of %s: %w", own, err)
		}
	}
	log, err := os.Create(filepath.Join(c.Folder, own+".log"))
	if err != nil {
		return err
	}
	command := exec.Command(c.Program, "--name", own, "--data-dir", filepath.Join(c.Folder, own),
		"--listen-peer-urls", c.peerURL(number), "--initial-advertise-peer-urls", c.peerURL(number),
		"--listen-client-urls", c.memberURL(number), "--advertise-client-urls", c.ClientURL(number),
		"--cert-file", files.Cert, "--key-file", files.Key, "--trusted-ca-file", files.CA, "--client-cert-auth",
		"--peer-cert-file", files.Cert, "--peer-key-file", files.Key, "--peer-trusted-ca-file", files.CA,
		"--peer-client-cert-auth",
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-state", state, "--unsafe-no-fsync",
	)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = childprocess.DieWithParent()
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", own, err), log.Close())
	}
	p := &process{command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // it is ended by a signal
		_ = log.Close()
		close(p.ended)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[number] = p
	return nil
}

// HasEnded reports whether the process of a member was started, and has ended by itself.
func (c *Cluster) HasEnded(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.running[number]
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Kill ends a member as the end of its machine does.
func (c *Cluster) Kill(number int) {
	c.mu.Lock()
	p := c.running[number]
	delete(c.running, number)
	c.mu.Unlock()
	if p != nil {
		_ = p.command.Process.Kill() // it may have ended
		<-p.ended
	}
}

// Stop ends all members.
func (c *Cluster) Stop() {
	c.mu.Lock()
	var numbers []int
	for number := range c.running {
		numbers = append(numbers, number)
	}
	c.mu.Unlock()
	for _, number := range numbers {
		c.Kill(number)
	}
	c.client.CloseIdleConnections()
}
