package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRequestsOfTheAccountAreCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	line := func(user, verb, object string) string {
		return `{"verb":"` + verb + `","user":{"username":"system:serviceaccount:runlevel-machines:` + user + `"},"objectRef":{` + object + "}}\n"
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	audit := &auditLog{file: file, account: controllerAccount}
	before := line(controllerAccount, "get", `"resource":"nodes"`)
	write(before)
	if err := audit.skip(); err != nil {
		t.Fatal(err)
	}
	after := before + line(controllerAccount, "patch", `"resource":"machines","subresource":"status"`) +
		line(peerAccount, "patch", `"resource":"machines"`) + line(controllerAccount, "create", `"resource":"tokenreviews"`)
	unfinished := strings.TrimSuffix(line(controllerAccount, "update", `"resource":"leases"`), "\n")
	write(after + unfinished[:20])
	for _, want := range []map[string]int{{"patch machines/status": 1}, {"update leases": 1}} {
		got, err := audit.read()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
		write(after + unfinished + "\n")
	}
	full := filepath.Join(filepath.Dir(file), "audit-2026-11-23T10-00-00.000.log")
	if err := os.Rename(file, full); err != nil {
		t.Fatal(err)
	}
	write(before)
	got, err := audit.read()
	if want := map[string]int{"get nodes": 1}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("after the log was full: %v, %v, want %v", got, err, want)
	}
}

func TestMetricsOfANameAreAddedUp(t *testing.T) {
	got, err := sums(strings.NewReader("# HELP a\na{b=\"1\"} 2\na{b=\"2\"} 1e+01\nc 0.5\n"))
	if want := map[string]float64{"a": 12, "c": 0.5}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestTheTablesOfMachines(t *testing.T) {
	r := &results{
		Spans: []span{
			{Of: "Runlevel", Fleet: "2 KwokMachines", Phase: making, Machines: 2, Seconds: 3, Requests: map[string]int{"get nodes": 4, "update leases": 9}, PeakMB: 60},
			{Of: "Runlevel", Fleet: "2 KwokMachines", Phase: atRest, Machines: 2, Seconds: 30, Requests: map[string]int{"get nodes": 1}},
			{Of: "floor", Fleet: "2 KwokMachines", Phase: making, Machines: 2, Seconds: 2, Requests: map[string]int{"patch nodes": 2}},
			{Of: inPlace, Fleet: "4 of a set", Phase: rolledOut, Machines: 4, Seconds: 3, Requests: map[string]int{"patch machines": 8}, PeakMB: 60},
			{Of: byReplacement, Fleet: "4 of a set", Phase: rolledOut, Machines: 4, Seconds: 12, Requests: map[string]int{"patch machines": 16}, PeakMB: 80},
		},
		Delays: []delay{{Of: "floor", Fleet: "2 KwokMachines", When: deleting, Seconds: []float64{3, 1, 2}}},
	}
	var printed strings.Builder
	if err := r.printText(&printed); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(printed.String()), " ")
	for _, want := range []string{
		"2 KwokMachines made Runlevel 3.0 s 2.00 0.00 0.0 s 60 MB 0 MB", "2 KwokMachines at rest Runlevel 30.0 s 2.0 a minute",
		"2 KwokMachines made Runlevel floor 1.50 2.00",
		"4 of a set rolled out Runlevel, in place Runlevel, by replacement 0.25 0.50 0.75", "deleted at once floor 3 2000 ms 3000 ms",
		"made Runlevel 4.50 update leases, 2.00 get nodes",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in %s", want, text)
		}
	}
}
