package manager_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/etcdguard/members"
	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/etcdcluster"
)

// patience is the timeout of waits: far longer than any wait takes.
const patience = 5 * time.Minute

// An etcdCluster is a real one, whose clients come through a gate of the test.
type etcdCluster struct {
	testing.TB
	*etcdcluster.Cluster
	gate    *gate
	client  *clientv3.Client
	asker   *http.Client    // requests single members
	options members.Options // options of the guard

	mu     sync.Mutex
	fronts map[int]*http.Server // servers of all members that were ever started
}

func newEtcdCluster(t *testing.T, g *gate) *etcdCluster {
	t.Helper()
	programs, err := binaries.Locate(t.Context(), []string{"etcd"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &etcdCluster{TB: t, gate: g, fronts: map[int]*http.Server{}}
	c.Cluster, err = etcdcluster.New(etcdcluster.Options{
		Program: programs["etcd"],
		Folder:  t.TempDir(),
		Front:   c.serveFront,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.options = members.Options{CertFile: c.ClientFiles.Cert, KeyFile: c.ClientFiles.Key, CAFile: c.ClientFiles.CA}
	c.client = c.connect()
	config, err := c.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	c.asker = &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	t.Cleanup(func() {
		c.asker.CloseIdleConnections()
		c.Stop()
		for _, front := range c.fronts {
			_ = front.Close()
		}
		_ = c.client.Close()
	})
	return c
}

// connect returns a client of the first members that there can be, and of those that etcd lists later.
func (c *etcdCluster) connect() *clientv3.Client {
	var endpoints []string
	for number := 1; number < 10; number++ {
		endpoints = append(endpoints, c.ClientURL(number))
	}
	config, err := c.ClientTLS()
	if err != nil {
		c.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:        endpoints,
		TLS:              config,
		Logger:           zap.NewNop(),
		AutoSyncInterval: time.Second,
	})
	if err != nil {
		c.Fatal(err)
	}
	return client
}

// bootstrap starts the first members.
func (c *etcdCluster) bootstrap(numbers ...int) {
	c.Helper()
	if err := c.Bootstrap(c.Context(), numbers...); err != nil {
		c.Fatal(err)
	}
	c.eventually("the cluster serves", func(ctx context.Context) error {
		_, err := c.client.Put(ctx, "health", "it serves")
		return err
	})
}

// serveFront passes the requests of clients to a member, past the gate.
func (c *etcdCluster) serveFront(number int, member string) error {
	toClients, err := c.FrontTLS(number)
	if err != nil {
		return err
	}
	toClients.NextProtos = []string{"h2"}
	toMember, err := c.ClientTLS()
	if err != nil {
		return err
	}
	target, err := url.Parse(member)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: toMember, ForceAttemptHTTP2: true},
		FlushInterval: -1,
		ErrorLog:      discard,
	}
	server := &http.Server{Handler: c.gate.pass(proxy, describeEtcd), ErrorLog: discard}
	listener, err := tls.Listen("tcp", c.Address(number)+":2379", toClients)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(listener) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fronts[number] = server
	return nil
}

// hasStarted returns whether a member was ever started.
func (c *etcdCluster) hasStarted(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fronts[number] != nil
}

// kill ends a member and its front, as the end of its machine does.
func (c *etcdCluster) kill(number int) {
	c.mu.Lock()
	front := c.fronts[number]
	c.mu.Unlock()
	if front != nil {
		_ = front.Close()
	}
	c.Kill(number)
}

// members returns the members, by their names; those that have not started have none.
func (c *etcdCluster) members(ctx context.Context,
	options ...clientv3.OpOption) (map[string]*etcdserverpb.Member, error) {
	listed, err := c.client.MemberList(ctx, options...)
	if err != nil {
		return nil, err
	}
	byName := map[string]*etcdserverpb.Member{}
	for _, member := range listed.Members {
		byName[strings.TrimPrefix(member.Name, "etcd-")] = member
	}
	return byName, nil
}

// eventually waits until something succeeds.
func (c *etcdCluster) eventually(what string, try func(context.Context) error) {
	c.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.Context(), 100*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			err := try(ctx)
			// the last problem explains more than the end of the timeout
			if err == nil || ctx.Err() == nil || last == nil {
				last = err
			}
			return err == nil, nil
		})
	if err != nil {
		c.Fatalf("never: %s: %v", what, last)
	}
}

// awaitMembers waits until the members are these: "1 2 3 4?", of which the last is a learner.
func (c *etcdCluster) awaitMembers(want string) {
	c.Helper()
	c.eventually("members "+want, func(ctx context.Context) error {
		found, err := c.members(ctx)
		if err != nil {
			return err
		}
		if got := describeMembers(found); got != want {
			return fmt.Errorf("they are %s", got)
		}
		return nil
	})
}
