package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestOptionsDetermineToolsAndRounds(t *testing.T) {
	for _, test := range []struct{ arguments, want string }{
		{"", "100: floor floor-wait runlevel runlevel-no-wait kubectl helm kapp, 7 times; " +
			"1000: floor floor-wait runlevel runlevel-no-wait kubectl helm kapp, 2 times; 5000: floor floor-wait " +
			"runlevel runlevel-no-wait helm kapp, 2 times"},
		{"--quick", "100: floor floor-wait runlevel runlevel-no-wait kubectl helm kapp, 1 times"},
		{"--sizes 50,500 --tools runlevel,helm --most-for helm=100 --rounds 5",
			"50: floor runlevel helm, 5 times; 500: floor runlevel, 5 times"},
		{"--sizes 1e3", `--sizes: "1e3" is not a number of objects: use 10 or more`},
		{"--sizes 9", `--sizes: "9" is not a number of objects: use 10 or more`},
		{"--tools flux",
			`--tools: unknown tool "flux": use floor, floor-wait, runlevel, runlevel-no-wait, kubectl, helm, kapp`},
		{"--most-for helm", `--most-for: "helm": use TOOL=OBJECTS, with a tool of --tools`},
		{"--tools runlevel --most-for kapp=1", `--most-for: "kapp=1": use TOOL=OBJECTS, with a tool of --tools`},
		{"-o yaml", "-o yaml: use text or json"},
		{"100", `unexpected argument "100"; see --help`},
	} {
		o, err := parse(strings.Fields(test.arguments))
		got := o.plan()
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s:\n%s\nnot\n%s", test.arguments, got, test.want)
		}
	}
}

// plan returns the tools and rounds of each size.
func (o *options) plan() string {
	var all []string
	for _, size := range o.sizes {
		line := fmt.Sprint(size, ":")
		for _, t := range o.toolsFor(size) {
			line += " " + t.name
		}
		all = append(all, fmt.Sprintf("%s, %d times", line, o.roundsOf(size)))
	}
	return strings.Join(all, "; ")
}

func TestRequestsAreThoseOfTheOrdinaryUser(t *testing.T) {
	requests, err := countRequests([]byte(`# HELP process_cpu_seconds_total Total user and system CPU time
process_cpu_seconds_total 12.5
apiserver_flowcontrol_dispatched_requests_total{flow_schema="exempt",priority_level="exempt"} 678
apiserver_flowcontrol_dispatched_requests_total{flow_schema="global-default",priority_level="global-default"} 1e+03
apiserver_flowcontrol_rejected_requests_total{flow_schema="global-default",priority_level="global-default",reason="queue-full"} 2
apiserver_flowcontrol_request_execution_seconds_sum{flow_schema="global-default",priority_level="global-default",type="regular"} 77
`))
	if err != nil || requests != 1002 {
		t.Errorf("got %v requests, %v; want 1002", requests, err)
	}
}
