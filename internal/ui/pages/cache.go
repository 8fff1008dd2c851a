package pages

import (
	"sync"

	"github.com/runlevel/runlevel/internal/review/plan"
)

// maxPlans limits the plans that a site keeps: those of open pages, which are made again with each change.
const maxPlans = 50

// A planCache keeps plans whose inputs have not changed. The keys name the inputs.
type planCache struct {
	mu    sync.Mutex
	plans map[any]*plan.Plan
}

// get returns the plan of a key, which it makes if it does not have it. It does not keep errors.
func (c *planCache) get(key any, build func() (*plan.Plan, error)) (*plan.Plan, error) {
	c.mu.Lock()
	found := c.plans[key]
	c.mu.Unlock()
	if found != nil {
		return found, nil
	}
	found, err := build()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plans == nil || len(c.plans) >= maxPlans {
		c.plans = map[any]*plan.Plan{}
	}
	c.plans[key] = found
	return found, nil
}
