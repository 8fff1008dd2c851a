// Package members is the quorum guard's client of etcd: it reads the members and their health, and makes the changes
// of the guard's steps. It decides nothing: package etcdguard does.
//
// Each call opens new connections, with the current certificates of the files: members are replaced, and
// certificates are renewed.
//
// Start with Client.Membership.
package members

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/runlevel/runlevel/internal/etcdguard"
)

// Options are the credentials and the patience of a Client. All files are in PEM.
type Options struct {
	CertFile string // certificate of a client
	KeyFile  string
	CAFile   string // certificates of the authority that signed the members' certificates
	// Patience is the time without an answer after which a member is unhealthy; 0 means 30 seconds.
	Patience time.Duration
}

const (
	// answerTime is the timeout of a request.
	answerTime = 5 * time.Second
	// stragglerTime is the timeout of other endpoints when one has answered.
	stragglerTime = time.Second
)

// DefaultPatience is the default of Options.Patience.
const DefaultPatience = 30 * time.Second

// A Client reads the members of a cluster. Its only state is since when members have not answered.
type Client struct {
	options Options
	mu      sync.Mutex
	silent  map[uint64]time.Time
}

// NewClient returns a client that has no connection yet.
func NewClient(o Options) *Client {
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	return &Client{options: o, silent: map[uint64]time.Time{}}
}

// A Membership contains the members of a cluster at one time.
type Membership struct {
	Members []etcdguard.Member
	client  *Client
	urls    map[uint64][]string // client URLs, by the member's ID
}

// Membership returns the members of the cluster of some endpoints, by a linearizable read.
func (c *Client) Membership(ctx context.Context, endpoints []string) (*Membership, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("no machine or node of the control plane has an address, and no endpoints are given " +
			"(--etcd-endpoints)")
	}
	listed, err := c.list(ctx, endpoints)
	if err != nil {
		return nil, err
	}
	m := &Membership{client: c, urls: map[uint64][]string{}, Members: make([]etcdguard.Member, len(listed))}
	leaders := make([]uint64, len(listed))
	var requests sync.WaitGroup
	for i, member := range listed {
		m.urls[member.ID] = member.ClientURLs
		m.Members[i] = etcdguard.Member{
			ID: member.ID, Name: member.Name, IsLearner: member.IsLearner,
			Addresses: hosts(slices.Concat(member.PeerURLs, member.ClientURLs)),
		}
		requests.Go(func() {
			leader, err := c.memberStatus(ctx, member)
			m.Members[i].Health, leaders[i] = c.health(member.ID, err), leader
		})
	}
	requests.Wait()
	for i := range m.Members {
		m.Members[i].IsLeader = !m.Members[i].IsLearner && slices.Contains(leaders, m.Members[i].ID)
	}
	c.forget(m.urls)
	return m, ctx.Err()
}

// list lists the members at all endpoints. Endpoints of different clusters are an error: one with a single member would
// need no other.
func (c *Client) list(ctx context.Context, endpoints []string) ([]*etcdserverpb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	type answer struct {
		*clientv3.MemberListResponse
		endpoint string
		err      error
	}
	answers := make(chan answer, len(endpoints))
	for _, endpoint := range endpoints {
		go func() {
			a := answer{endpoint: endpoint}
			a.err = c.with(ctx, []string{endpoint}, func(e *clientv3.Client) (err error) {
				a.MemberListResponse, err = e.MemberList(ctx)
				return err
			})
			answers <- a
		}()
	}
	var first *answer
	var problems []string
	var stragglers <-chan time.Time
	for range endpoints {
		select {
		case a := <-answers:
			switch {
			case a.err != nil:
				problems = append(problems, fmt.Sprintf("%s: %v", a.endpoint, a.err))
			case first == nil:
				first, stragglers = &a, time.After(stragglerTime)
			case first.Header.ClusterId != a.Header.ClusterId:
				return nil, fmt.Errorf("%s and %s belong to different etcd clusters (%x, %x)", first.endpoint,
					a.endpoint, first.Header.ClusterId, a.Header.ClusterId)
			}
		case <-stragglers:
			return first.Members, nil
		}
	}
	if first == nil {
		slices.Sort(problems) // an event reports each change of the message
		return nil, fmt.Errorf("no endpoint answers: %s", strings.Join(problems, "; "))
	}
	return first.Members, nil
}

// memberStatus returns the leader that a member knows, or the error of an unhealthy member.
func (c *Client) memberStatus(ctx context.Context, member *etcdserverpb.Member) (leader uint64, err error) {
	if len(member.ClientURLs) == 0 {
		return 0, errors.New("it has not started")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err = c.with(ctx, member.ClientURLs, func(e *clientv3.Client) error {
		status, err := e.Status(ctx, member.ClientURLs[0])
		if err != nil {
			return err
		}
		leader = status.Leader
		if len(status.Errors) > 0 {
			return errors.New(strings.Join(status.Errors, ", "))
		}
		if member.IsLearner { // learners refuse linearizable reads
			return nil
		}
		_, err = e.Get(ctx, "health")
		if isDenied(err) { // which needs a quorum as well
			return nil
		}
		return err
	})
	return leader, err
}

// health records since when a member does not answer, and returns its health.
func (c *Client) health(id uint64, err error) etcdguard.MemberHealth {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.silent, id)
		return etcdguard.Healthy
	}
	if _, ok := c.silent[id]; !ok {
		c.silent[id] = time.Now()
	}
	if time.Since(c.silent[id]) < c.options.Patience {
		return etcdguard.Silent
	}
	return etcdguard.Unhealthy
}

// forget drops deleted members.
func (c *Client) forget(known map[uint64][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.silent {
		if _, ok := known[id]; !ok {
			delete(c.silent, id)
		}
	}
}

// with calls a function with a client of endpoints, and closes the client.
func (c *Client) with(ctx context.Context, endpoints []string, do func(*clientv3.Client) error) error {
	config, err := c.tlsConfig()
	if err != nil {
		return err
	}
	e, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: endpoints, TLS: config, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer e.Close()
	return do(e)
}

// tlsConfig reads the certificates. Without a CA file, members are verified with the system's authorities.
func (c *Client) tlsConfig() (*tls.Config, error) {
	info := transport.TLSInfo{CertFile: c.options.CertFile, KeyFile: c.options.KeyFile, TrustedCAFile: c.options.CAFile}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the certificates: %w", err)
	}
	return config, nil
}

// hosts returns the hosts of URLs, each once.
func hosts(urls []string) []string {
	var found []string
	for _, name := range urls {
		if parsed, err := url.Parse(name); err == nil {
			found = append(found, Host(parsed.Hostname()))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Host returns a host in the form of Member.Addresses.
func Host(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return strings.ToLower(host)
}

// Change carries out a step: it promotes a learner, removes a member, or moves the leadership.
func (m *Membership) Change(ctx context.Context, step etcdguard.Step) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	endpoints := m.endpoints(step)
	if len(endpoints) == 0 {
		return errors.New("no member answers that could be asked for it")
	}
	return m.client.with(ctx, endpoints, func(e *clientv3.Client) error {
		switch step.Action {
		case etcdguard.PromoteLearner:
			_, err := e.MemberPromote(ctx, step.Member.ID)
			return err
		case etcdguard.RemoveMember:
			_, err := e.MemberRemove(ctx, step.Member.ID)
			return err
		case etcdguard.MoveLeadership:
			_, err := e.MoveLeader(ctx, step.Member.ID)
			return err
		}
		return fmt.Errorf("no way to %s", step.Action)
	})
}

// endpoints returns where a step is requested: at the leader to move the leadership, and otherwise at other healthy
// voters.
func (m *Membership) endpoints(step etcdguard.Step) []string {
	var urls []string
	for _, member := range m.Members {
		isVoter := !member.IsLearner && member.Health == etcdguard.Healthy && member.ID != step.Member.ID
		if isVoter && (step.Action != etcdguard.MoveLeadership || member.IsLeader) {
			urls = append(urls, m.urls[member.ID]...)
		}
	}
	return slices.Compact(urls)
}

// IsTooEarly reports whether etcd refuses a change that it will accept later: a learner is behind the leader, or
// members have only just restarted.
func IsTooEarly(err error) bool {
	return errors.Is(err, rpctypes.ErrMemberLearnerNotReady) || errors.Is(err, rpctypes.ErrUnhealthy) ||
		errors.Is(err, rpctypes.ErrMemberNotEnoughStarted)
}

func isDenied(err error) bool { return errors.Is(err, rpctypes.ErrPermissionDenied) }
