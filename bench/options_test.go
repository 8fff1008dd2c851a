package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	for _, test := range []struct{ arguments, want string }{
		{"--corpus=", "100: floor floor-wait runlevel runlevel-no-wait kubectl helm kapp, 7 times; 300: floor floor-wait runlevel runlevel-no-wait kubectl helm kapp, 5 times; " +
			"1000: floor floor-wait runlevel runlevel-no-wait kubectl helm kapp, 2 times; 5000: floor floor-wait runlevel runlevel-no-wait helm kapp, 2 times"},
		{"--quick --corpus x", "100: floor floor-wait runlevel runlevel-no-wait kubectl helm kapp, 1 times"},
		{"--sizes 50,500 --tools runlevel,helm --most-for helm=100 --rounds 5", "50: floor runlevel helm, 5 times; 500: floor runlevel, 5 times"},
		{"--sizes 1e3", `--sizes: "1e3" is no number of objects: use 10 or more`},
		{"--sizes 9", `--sizes: "9" is no number of objects: use 10 or more`},
		{"--tools flux", `--tools: there is no "flux": use floor, floor-wait, runlevel, runlevel-no-wait, kubectl, helm, kapp`},
		{"--most-for helm", `--most-for: "helm": use TOOL=OBJECTS, of a tool that takes part`},
		{"--tools runlevel --most-for kapp=1", `--most-for: "kapp=1": use TOOL=OBJECTS, of a tool that takes part`},
		{"-o yaml", "-o yaml: use text or json"},
		{"100", `"100": there are flags only; see --help`},
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

// plan says who is to be measured with what.
func (o *options) plan() string {
	var all []string
	for _, size := range o.sizes {
		line := fmt.Sprint(size, ":")
		for _, who := range o.takingPart(size) {
			line += " " + who.name
		}
		all = append(all, fmt.Sprintf("%s, %d times", line, o.roundsOf(generated(size))))
	}
	return strings.Join(all, "; ")
}

func TestTheMeterCountsTheOrdinaryUserOnly(t *testing.T) {
	var m meter
	err := m.scan(strings.NewReader(`# HELP process_cpu_seconds_total Total user and system CPU time
process_cpu_seconds_total 12.5
apiserver_flowcontrol_dispatched_requests_total{flow_schema="exempt",priority_level="exempt"} 678
apiserver_flowcontrol_dispatched_requests_total{flow_schema="global-default",priority_level="global-default"} 1e+03
apiserver_flowcontrol_rejected_requests_total{flow_schema="global-default",priority_level="global-default",reason="queue-full"} 2
apiserver_flowcontrol_request_execution_seconds_sum{flow_schema="global-default",priority_level="global-default",type="regular"} 77
`))
	if err != nil || m != (meter{requests: 1002, cpu: 12.5}) {
		t.Errorf("%+v, %v", m, err)
	}
}
