package manager_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var (
	crowdSize = flag.Int("crowd", 60, "how many machines of each API TestCrowd deletes at once, 50 or more")
	crowdSeed = flag.Uint64("crowd-seed", 0, "what TestCrowd and TestSoak choose; 0 for something else each time")
	soakTime  = flag.Duration("soak", 20*time.Second, "for how long TestSoak creates and deletes machines")
)

// A crowd is many machines of both APIs. Hooks hold some of the machines, and disruption budgets hold others. When all
// machines are deleted, the test may create another wave.
type crowd struct {
	*scene
	controllers *controllerProcess
	random      *rand.Rand
	hookedOf    int    // one of so many machines has hooks
	wave        string // prefix of the names of the machines
	members     []crowdMember
	budgets     map[string]string // budgets by the machine whose pod they forbid to evict
	isOver      bool              // all machines are deleted
}

// newCrowd starts a control plane and controllers for a crowd.
func newCrowd(t *testing.T) *crowd {
	t.Helper()
	seed := *crowdSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crowd=%d -soak=%s -crowd-seed=%d", *crowdSize, *soakTime, seed)
	s := newScene(t)
	s.makeCluster()
	return &crowd{scene: s, controllers: s.runControllers(), random: rand.New(rand.NewPCG(seed, 0)), hookedOf: 5}
}

// TestCrowd deletes many machines at once. Meanwhile the controllers end and are killed, and the API server is killed.
func TestCrowd(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	c := newCrowd(t)
	defer c.reportWhyStuck()
	c.begin("crowd", *crowdSize)
	c.each(len(c.members), func(i int) error { return c.Delete(t.Context(), c.members[i].machine()) })
	held := c.held()
	disturbances := c.disturbances()
	for i, disturb := range disturbances {
		c.awaitLeft(held + (len(c.members)-held)*(len(disturbances)-i)/(len(disturbances)+1))
		disturb()
	}
	c.finish()
}

// TestSoak creates and deletes wave after wave of machines. In each wave, deletions, removals of hooks and budgets, and
// accidents happen in random order.
func TestSoak(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.hookedOf = 2
	defer c.reportWhyStuck()
	for begin, wave := time.Now(), 0; wave == 0 || time.Since(begin) < *soakTime; wave++ {
		c.begin(fmt.Sprintf("soak%d", wave), 5+c.random.IntN(20))
		acts := c.releases()
		acts = append(acts[:c.random.IntN(len(acts)/2+1)], c.disturbances()[:c.random.IntN(4)]...)
		for _, member := range c.members {
			acts = append(acts, func() { c.delete(member.machine()) })
		}
		c.shuffle(acts)
		inOrder(acts...)
		c.controllers.end()
		c.finish()
		c.must(removeFullAudits(c.control))
	}
}

// begin creates a wave of machines, and pods for some.
func (c *crowd) begin(wave string, size int) {
	c.wave, c.members, c.budgets, c.isOver = wave, nil, map[string]string{}, false
	c.make(size)
	c.populate()
	c.logProgress("all are running")
}

// finish waits until the remaining machines report the reasons for their holds, removes all holds, and checks the
// histories of the machines.
func (c *crowd) finish() {
	c.await(c.unexplained)
	c.logProgress("all remaining machines report what holds them")
	releases := c.releases()
	for _, disturb := range c.disturbances() {
		index := c.random.IntN(len(releases))
		release := releases[index]
		releases[index] = func() { inOrder(release, disturb) }
	}
	inOrder(releases...)
	c.controllers.end() // otherwise an eviction refused by a budget is retried only after up to a minute
	c.awaitLeft(0)
	c.logProgress("all machines are deleted")
	c.isOver = true
	c.checkNothingLeft()
	c.checkHistories(len(c.members), c.logged())
	c.logProgress("the audit log is read")
}

// logged returns the text that all lines of the audit log about the wave contain.
func (c *crowd) logged() string { return fmt.Sprintf(`"name":"%s-`, c.wave) }

func (c *crowd) shuffle(acts []func()) {
	c.random.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
}

// disturbances returns functions that disturb a crowd, in random order.
func (c *crowd) disturbances() []func() {
	all := []func(){c.controllers.end, c.controllers.kill, c.crash}
	c.shuffle(all)
	return all
}

// reportWhyStuck reports the violations in the audit log if the controllers did not delete all machines.
func (c *crowd) reportWhyStuck() {
	if c.isOver {
		return
	}
	requests, err := readAudit(c.control, c.crashes, c.logged())
	if err != nil {
		c.t.Error(err)
	}
	c.reportViolations(historiesOf(requests))
}

func (c *crowd) logProgress(message string) {
	c.t.Logf("%s %s, %s: %d machines", clock(time.Now()), c.wave, message, len(c.states()))
}

func (c *crowd) awaitLeft(most int) {
	c.t.Helper()
	c.await(func() string {
		left := c.states()
		if len(left) <= most {
			return ""
		}
		return fmt.Sprintf("%d machines are left, as %s in stage %d with %q", len(left), left[0].Name, left[0].stage,
			left[0].waits)
	})
}

// checkNothingLeft finds neither a Node nor infrastructure of a deleted machine.
func (c *crowd) checkNothingLeft() {
	var infrastructure v1alpha1.KwokMachineList
	c.must(c.List(c.t.Context(), &infrastructure))
	var nodes corev1.NodeList
	c.must(c.List(c.t.Context(), &nodes))
	isOurs := func(n corev1.Node) bool { return strings.HasPrefix(n.Name, c.wave+"-") }
	if len(infrastructure.Items) > 0 || slices.ContainsFunc(nodes.Items, isOurs) {
		c.t.Errorf("%d KwokMachines and %d Nodes are left", len(infrastructure.Items), len(nodes.Items)-1)
	}
}

// unless returns the formatted message if a condition is false, and otherwise "".
func unless(isSo bool, missing string, arguments ...any) string {
	if isSo {
		return ""
	}
	return fmt.Sprintf(missing, arguments...)
}
