package manager_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

// planeAudit is an audit policy that records each write of Machines of Cluster API.
const planeAudit = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - {group: cluster.x-k8s.io, resources: [machines]}
- level: None
`

// A machineWrite is a write of a Machine, with the result.
type machineWrite struct {
	Begin   time.Time `json:"requestReceivedTimestamp"`
	End     time.Time `json:"stageTimestamp"`
	Verb    string
	Machine clusterv1.Machine `json:"responseObject"`
}

// isRemoval returns whether a write removes the Machine. Such a write has the resource version of the previous one.
func (w machineWrite) isRemoval() bool {
	return w.Machine.DeletionTimestamp != nil && len(w.Machine.Finalizers) == 0
}

// readHistory returns the writes of Machines that succeeded, in the order of their resource versions: that of the API
// server, in which the times of writes that were made at once are not.
func (s *planeScene) readHistory(t *testing.T) []machineWrite {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.shared.Sandbox(t).Logs, "audit*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var writes []machineWrite
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<22)
		for lines.Scan() {
			var write machineWrite
			if json.Unmarshal(lines.Bytes(), &write) == nil && write.Machine.UID != "" {
				writes = append(writes, write)
			}
		}
	}
	slices.SortStableFunc(writes, func(a, b machineWrite) int {
		order, err := resourceversion.CompareResourceVersion(a.Machine.ResourceVersion, b.Machine.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		return order
	})
	return writes
}

// settleTime limits the time between a decision of a control plane and its write.
const settleTime = 5 * time.Second

// checkHistory checks, by the audit log, that no update in place began while another machine was updated or being
// deleted, and that each was permitted by the guard at that moment.
func (s *planeScene) checkHistory(t *testing.T) {
	t.Helper()
	last := map[string]machineWrite{}
	updates := 0
	for _, write := range s.readHistory(t) {
		m := write.Machine
		before := last[m.Name]
		isBegun := rolloutrules.IsUpdating(&m) && !rolloutrules.IsUpdating(&before.Machine)
		if isBegun && before.Machine.UID == m.UID {
			updates++
			s.checkBegin(t, before, write, last)
		}
		last[m.Name] = write
	}
	t.Logf("%d updates in place", updates)
	if updates < 6 {
		t.Errorf("%d updates in place in the audit log", updates)
	}
}

func (s *planeScene) checkBegin(t *testing.T, before, write machineWrite, last map[string]machineWrite) {
	t.Helper()
	if !rolloutrules.IsPermitted(&before.Machine, write.Begin) {
		t.Errorf("%s: Machine %s is updated without permission: %q", write.Begin.Format(time.TimeOnly),
			write.Machine.Name, before.Machine.Annotations)
	}
	for name, other := range last {
		if other.isRemoval() && !write.End.Before(other.Begin) {
			continue
		}
		isBusy := rolloutrules.IsUpdating(&other.Machine) ||
			other.Machine.DeletionTimestamp != nil && write.Begin.Sub(other.Machine.DeletionTimestamp.Time) > settleTime
		if name != write.Machine.Name && isBusy {
			t.Errorf("%s: Machine %s is updated while Machine %s is: %q, deleted %v", write.Begin.Format(time.TimeOnly),
				write.Machine.Name, name,
				other.Machine.Annotations, other.Machine.DeletionTimestamp)
		}
	}
}
