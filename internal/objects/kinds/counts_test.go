package kinds_test

import (
	"encoding/json"
	"testing"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

func TestObjectCountsString(t *testing.T) {
	t.Parallel()
	pods := kinds.Count{Kind: "Pod", Resource: "pods", Objects: 3}
	policies := kinds.Count{Group: "networking.k8s.io", Kind: "NetworkPolicy", Resource: "networkpolicies", Objects: 2}
	secret := kinds.Count{Kind: "Secret", Resource: "secrets", Objects: 1}
	for name, c := range map[string]struct {
		of         []kinds.Count
		text, json string
	}{
		"nothing": {nil, "no objects", `{"objects":0}`},
		"one object": {[]kinds.Count{secret}, "1 object: Secret",
			`{"objects":1,"kinds":[{"kind":"Secret","resource":"secrets","objects":1}]}`},
		"some kinds": {[]kinds.Count{pods, policies, secret}, "6 objects: 3 Pods, 2 NetworkPolicies, Secret", ""},
		"many kinds": {[]kinds.Count{pods, policies, secret, secret, pods, secret},
			"11 objects: 3 Pods, 2 NetworkPolicies, Secret, Secret and 4 more", ""},
		"namesakes": {[]kinds.Count{pods, {Group: "of.example.com", Kind: "Pod", Resource: "pods", Objects: 1}},
			"4 objects: 3 Pods, Pod of of.example.com", ""},
		"odd letters": {[]kinds.Count{{Kind: "A\nB", Resource: "x", Objects: 1}}, `1 object: A\nB`, ""},
	} {
		tally := kinds.ObjectCounts{Kinds: c.of}
		for _, kind := range c.of {
			tally.Objects += kind.Objects
		}
		if got := tally.String(); got != c.text {
			t.Errorf("%s: %q, want %q", name, got, c.text)
		}
		if got, err := json.Marshal(tally); err != nil || c.json != "" && string(got) != c.json {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.json)
		}
	}
}

func TestNewObjectCountsSortsKinds(t *testing.T) {
	t.Parallel()
	tally := kinds.NewObjectCounts([]kinds.Count{
		{Kind: "Secret", Objects: 1}, {Group: "of.example.com", Kind: "Pod", Objects: 1}, {Kind: "Pod", Objects: 1},
		{Kind: "Service", Resource: "services", Objects: 2},
	})
	if want := "5 objects: 2 Services, Pod, Pod of of.example.com, Secret"; tally.String() != want {
		t.Errorf("%q, want %q", tally, want)
	}
}
