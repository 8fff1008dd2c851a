package etcdcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// A Member contains the data that etcd reports of a member.
type Member struct {
	Name      string   `json:"name"` // empty until the member has started
	PeerURLs  []string `json:"peerURLs"`
	IsLearner bool     `json:"isLearner"`
}

// Members returns the members, sorted by their names.
func (c *Cluster) Members(ctx context.Context) ([]Member, error) {
	var list struct {
		Members []Member `json:"members"`
	}
	if err := c.call(ctx, "list", struct{}{}, &list); err != nil {
		return nil, fmt.Errorf("list etcd's members: %w", err)
	}
	slices.SortFunc(list.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return list.Members, nil
}

// addLearner adds a member as a learner. etcd refuses a new member, as in an unhealthy cluster, until its members have
// been connected with each other for 5 seconds.
func (c *Cluster) addLearner(ctx context.Context, peerURL string) error {
	request := map[string]any{"peerURLs": []string{peerURL}, "isLearner": true}
	var lastErr error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			lastErr = c.call(ctx, "add", request, &struct{}{})
			if lastErr != nil && strings.Contains(lastErr.Error(), "unhealthy cluster") {
				return false, nil
			}
			return true, lastErr
		})
	switch {
	case err == nil:
		return nil
	case lastErr != nil: // more precise than the timeout
		err = lastErr
	}
	return fmt.Errorf("add a learner to etcd: %w", err)
}

// call sends a request to the running members, one after the other, until one answers. It uses the JSON API that etcd
// serves beside gRPC, so that callers need no client of etcd.
func (c *Cluster) call(ctx context.Context, method string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	lastErr := errors.New("no member runs")
	c.mu.Lock()
	numbers := slices.Sorted(maps.Keys(c.running))
	c.mu.Unlock()
	for _, number := range numbers {
		if lastErr = c.post(ctx, c.memberURL(number)+"/v3/cluster/member/"+method, body, response); lastErr == nil {
			return nil
		}
	}
	return lastErr
}

func (c *Cluster) post(ctx context.Context, url string, body []byte, response any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return json.Unmarshal(text, response)
}
