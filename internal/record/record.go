// Package record keeps what was applied to a cluster: one small object per release, with
// its history, the deletes that were asked for, the kinds that it ever had, the Jobs that
// are done, and how the run of an apply stands. It stands in a ConfigMap, so that it outlives
// the process that applies. The Lease of the same name is package lock's, and has a copy of it.
//
// A Record is a plain value, for one goroutine at a time. What is in it tells what
// the user meant to do, never how an object is: that is read from the object.
//
// NewStore is the call to start from, for Load and Save. List reads the records of all releases.
package record

import (
	"cmp"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Record is what is known of one release on a cluster.
type Record struct {
	Release    string         `json:"release"`
	Own        string         `json:"own,omitempty"`        // the source that the operator was started with which has begun the newest entry
	History    []HistoryEntry `json:"history,omitempty"`    // newest first
	Tombstones []Tombstone    `json:"tombstones,omitempty"` // whose delete was asked for, until the object is seen gone; across versions
	Left       []Leftover     `json:"left,omitempty"`       // that installs have left to be deleted by the next apply
	Kinds      []AppliedKind  `json:"kinds,omitempty"`      // ever applied: where orphans are looked for; sorted, each once
	Jobs       []Job          `json:"jobs,omitempty"`       // that finished, so that one which its TTL removed is not run again
	Waits      []ObjectWait   `json:"waits,omitempty"`      // what the applier waits for now
	Run        *Run           `json:"run,omitempty"`        // how it stands, or the last that did not end well stood
	Repairs    *Repairs       `json:"repairs,omitempty"`
	// Hooks are of the Deployments with lifecycle hooks.
	Hooks []DeploymentHooks `json:"hooks,omitempty"`

	// Durations are of the last run of each mode. They are the first that is given up where
	// there is no room.
	Durations map[string]Durations `json:"durations,omitempty"`

	// Fingerprints are those of package fingerprint. They are beside the rest, and given up where
	// there is no room for them.
	Fingerprints []byte `json:"-"`
}

// An UpdateState says how far an update came.
type UpdateState string

// The states, in the words of ClusterVersion.
const (
	Partial   UpdateState = "Partial"   // it was begun
	Completed UpdateState = "Completed" // all of it was applied
)

// An HistoryEntry is one update in the history.
type HistoryEntry struct {
	State     UpdateState  `json:"state"`
	Version   string       `json:"version,omitempty"`
	Hash      string       `json:"hash,omitempty"`    // of the payload
	Content   string       `json:"content,omitempty"` // the hash of the release's files, whatever was left out; old entries have none
	Source    string       `json:"source,omitempty"`
	Mode      string       `json:"mode,omitempty"` // as package graph calls it
	Started   metav1.Time  `json:"started"`
	Completed *metav1.Time `json:"completed,omitempty"`
	Forced    []string     `json:"forced,omitempty"` // the gates that were overridden
	// Hooks are the lifecycle hooks that users have skipped or run again.
	Hooks    []HookOverride `json:"hooks,omitempty"`
	Verified bool           `json:"verified,omitempty"` // the signatures of its image were
	// Capabilities are those that were enabled, if not all were.
	Capabilities []configv1.ClusterVersionCapability `json:"capabilities,omitempty"`
	Tombstones   []kinds.ID                          `json:"tombstones,omitempty"` // that the version carries; old entries may have lost them
	End          *End                                `json:"end,omitempty"`        // of its last run, if that has not completed it
}

// An End is when and why a run ended that has not completed its update. A run that was killed, or
// has lost its lock, leaves none.
type End struct {
	Time     metav1.Time     `json:"time"`
	Reason   string          `json:"reason,omitempty"` // in the words of the cluster-version operator
	Message  string          `json:"message"`
	Failures []ObjectFailure `json:"failures,omitempty"` // the first of them; old entries may have lost them
	More     int             `json:"more,omitempty"`     // failures that are left out
}

// An ObjectFailure is an object that was not applied, or was not ready.
type ObjectFailure struct {
	kinds.ID `json:",inline"`
	Hook     string `json:"hook,omitempty"` // of the object, if that has failed
	File     string `json:"file,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message"`
}

// A Tombstone is a delete that was asked for.
type Tombstone struct {
	kinds.ID    `json:",inline"`
	UID         types.UID   `json:"uid,omitempty"`     // of what is to go; "" if it was not seen yet
	Version     string      `json:"version,omitempty"` // that asked for it
	RequestedAt metav1.Time `json:"asked"`
	IsBack      bool        `json:"isBack,omitempty"` // an earlier version had deleted it, and it was recreated
	Sent        bool        `json:"sent,omitempty"`   // the DELETE was sent; of an apply that was killed, that may not be known
}

// A Leftover is the object of a tombstone that an install has found, and not deleted.
type Leftover struct {
	kinds.ID `json:",inline"`
	UID      types.UID `json:"uid"`
}

// An AppliedKind is a kind of objects, whatever its version.
type AppliedKind struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
}

// A Job is one that finished.
type Job struct {
	kinds.ID `json:",inline"`
	UID      types.UID `json:"uid,omitempty"`
	Sum      string    `json:"sum,omitempty"` // of its manifest
}

// An ObjectWait is something that the applier waits for.
type ObjectWait struct {
	kinds.ID `json:",inline"`
	Hook     string      `json:"hook,omitempty"` // of the object, if that waits
	For      string      `json:"for"`
	Since    metav1.Time `json:"since"`
}

// updates is the mode of entries that delete, as package graph calls it.
const updates = "update"

// maxHistory is how many entries are kept: as many as ClusterVersion has.
const maxHistory = 100

// Begin notes that an update begins. One that was begun already, and not completed, goes
// on: it keeps the time when it started, and the gates that were overridden then.
func (r *Record) Begin(e HistoryEntry) {
	e.State, e.Completed, e.End = Partial, nil, nil
	if e.Mode == updates { // which deletes all that its version has tombstones of
		r.Left = nil
	}
	if newest := r.Newest(); newest != nil && newest.State == Partial && newest.Hash == e.Hash && newest.Version == e.Version && e.Hash != "" {
		e.Started = newest.Started
		e.Forced, e.Verified = joined(newest.Forced, e.Forced), newest.Verified || e.Verified
		e.Hooks = lastOverrides(append(slices.Clone(newest.Hooks), e.Hooks...))
		*newest = e
		return
	}
	r.History = slices.Insert(r.History, 0, e)
	r.Repairs = nil
	r.prune()
}

// joined is what is in either list, each once.
func joined(a, b []string) []string {
	all := slices.Clone(a)
	for _, name := range b {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// prune drops the oldest entries that may go: not the first of all, which tells when the
// release came, and not the one that is known to work.
func (r *Record) prune() {
	applied := slices.IndexFunc(r.History, isCompleted)
	for at := len(r.History) - 2; len(r.History) > maxHistory && at > 0; at-- {
		if at != applied {
			r.History = slices.Delete(r.History, at, at+1)
		}
	}
}

func isCompleted(e HistoryEntry) bool { return e.State == Completed }

// Complete notes that all of the newest update was applied.
func (r *Record) Complete(now metav1.Time) {
	if newest := r.Newest(); newest != nil && newest.State != Completed {
		newest.State, newest.Completed, newest.End = Completed, &now, nil
	}
}

// Stop notes that a run of the newest update has ended, and has not completed it.
func (r *Record) Stop(end End) {
	if newest := r.Newest(); newest != nil && newest.State != Completed {
		newest.End = &end
	}
}

// Newest is the last update that was begun, completed or not; nil if there was none.
func (r *Record) Newest() *HistoryEntry {
	if len(r.History) == 0 {
		return nil
	}
	return &r.History[0]
}

// Applied is the last update that was completed; nil if none ever was.
func (r *Record) Applied() *HistoryEntry {
	at := slices.IndexFunc(r.History, isCompleted)
	if at < 0 {
		return nil
	}
	return &r.History[at]
}

// HasUpdated says whether an update of the release was ever begun, and so something was there before.
func (r *Record) HasUpdated() bool {
	return slices.ContainsFunc(r.History, func(e HistoryEntry) bool { return e.Mode == updates })
}

// RequestDelete notes that a delete is asked for. Who asks again, for the same object, changes
// nothing: the time of the first request stays. An object that was not seen then gets its
// UID, and one with another UID takes the place of the one before, which must be gone.
func (r *Record) RequestDelete(t Tombstone) {
	r.Left = slices.DeleteFunc(r.Left, func(left Leftover) bool { return left.ID == t.ID })
	at := slices.IndexFunc(r.Tombstones, func(known Tombstone) bool { return known.ID == t.ID })
	switch {
	case at < 0:
		r.Tombstones = append(r.Tombstones, t)
	case t.UID == "" || t.UID == r.Tombstones[at].UID:
	case r.Tombstones[at].UID == "":
		r.Tombstones[at].UID = t.UID
	default:
		r.Tombstones[at] = t
	}
}

// Leave notes that an install has found the object of a tombstone, in place of an earlier object of that name.
func (r *Record) Leave(l Leftover) {
	r.Left = slices.DeleteFunc(r.Left, func(known Leftover) bool { return known.ID == l.ID })
	r.Left = append(r.Left, l)
}

// WasLeft reports whether an install has left the object with a UID to be deleted by the next apply.
func (r *Record) WasLeft(id kinds.ID, uid types.UID) bool {
	return slices.Contains(r.Left, Leftover{ID: id, UID: uid})
}

// NoteSent notes that the DELETE of an object is sent.
func (r *Record) NoteSent(id kinds.ID, uid types.UID) {
	for i := range r.Tombstones {
		if tombstone := &r.Tombstones[i]; tombstone.ID == id && tombstone.UID == uid {
			tombstone.Sent = true
		}
	}
}

// ForgetDelete notes that an object which was to be deleted is gone. The UID is the one that
// RequestDelete was given: an object that came in its place is not meant. Hooks that have run for it run again for the next one.
func (r *Record) ForgetDelete(id kinds.ID, uid types.UID) {
	r.RememberHooks(id, deploymenthook.State{})
	r.Tombstones = slices.DeleteFunc(r.Tombstones, func(known Tombstone) bool { return known.ID == id && known.UID == uid })
}

// AddKinds notes kinds that are applied.
func (r *Record) AddKinds(kinds ...AppliedKind) {
	r.Kinds = append(r.Kinds, kinds...)
	slices.SortFunc(r.Kinds, func(a, b AppliedKind) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
	r.Kinds = slices.Compact(r.Kinds)
}

// GroupKinds returns the kinds that were ever applied.
func (r *Record) GroupKinds() []schema.GroupKind {
	var all []schema.GroupKind
	for _, kind := range r.Kinds {
		all = append(all, schema.GroupKind{Group: kind.Group, Kind: kind.Kind})
	}
	return all
}

// RememberJob notes that a Job finished, in place of an earlier one of that name.
func (r *Record) RememberJob(j Job) {
	r.ForgetJob(j.ID)
	r.Jobs = append(r.Jobs, j)
}

// FindJob is what is known of a Job that finished.
func (r *Record) FindJob(id kinds.ID) (Job, bool) {
	at := slices.IndexFunc(r.Jobs, func(known Job) bool { return known.ID == id })
	if at < 0 {
		return Job{}, false
	}
	return r.Jobs[at], true
}

// ForgetJob makes a Job one that never ran, because it was deleted for example.
func (r *Record) ForgetJob(id kinds.ID) {
	r.Jobs = slices.DeleteFunc(r.Jobs, func(known Job) bool { return known.ID == id })
}
