// Package record keeps the record of each release on a cluster: its history, the requested
// deletes, all kinds that it ever had, the finished Jobs, and the state of the run of an
// apply. It is in a ConfigMap, so that it outlives the process that applies. The Lease of
// the same name is package lock's, and has a copy of the record.
//
// A Record is a plain value, for one goroutine at a time. It has the intent of the user, never the state of an object,
// which is read from the object.
//
// Store.Load and Store.Save read and write a record. List reads the records of all releases. Start with NewStore.
package record

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Record is the record of one release on a cluster.
type Record struct {
	Release string `json:"release"`
	Own     string `json:"own,omitempty"`    // the source with which the operator of the newest entry was started
	KeptBy  string `json:"keptBy,omitempty"` // the holder of the lock that began last to keep the release in place
	// ReportID is a random ID for reports of updates: receivers can't trace it to a cluster.
	ReportID string `json:"reportID,omitempty"`
	// LastRevision is the highest number that an update of the release was ever given.
	LastRevision int     `json:"lastRevision,omitempty"`
	History      History `json:"history,omitempty"` // newest first
	// requested deletes, across versions, until the objects are deleted
	Tombstones []Tombstone `json:"tombstones,omitempty"`
	Left       []Leftover  `json:"left,omitempty"` // objects that installs have left for the next apply to delete
	// ever applied: orphans are searched in these; sorted, each once
	Kinds   []AppliedKind `json:"kinds,omitempty"`
	Jobs    []Job         `json:"jobs,omitempty"`  // finished Jobs, so that a Job is not run again after its TTL
	Waits   []ObjectWait  `json:"waits,omitempty"` // waits of the process that applies the release
	Run     *Run          `json:"run,omitempty"`   // the current run, or the last one if it has failed
	Repairs *Repairs      `json:"repairs,omitempty"`
	// begun and not ended: some objects of the release may have been deleted
	Uninstall *Uninstall `json:"uninstall,omitempty"`
	// Hooks are the states of lifecycle hooks.
	Hooks []DeploymentHooks `json:"hooks,omitempty"`

	// Durations are those of the last run of each mode. They are removed first if the record is
	// too large.
	Durations map[string]Durations `json:"durations,omitempty"`

	// Fingerprints are those of package fingerprint. They are in a key of their own, and removed if they do not fit.
	Fingerprints []byte `json:"-"`
}

// An Uninstall is the removal of a release from the cluster. The record ends with it.
type Uninstall struct {
	Since      metav1.Time `json:"since"`
	By         string      `json:"by"`   // the holder of the lock
	Left       int         `json:"left"` // objects that were still to be deleted at the last report
	ReportedAt metav1.Time `json:"reportedAt"`
}

// String returns since when the release has been uninstalled, and how many objects are left, as a part of a sentence.
func (u *Uninstall) String() string {
	return fmt.Sprintf("being uninstalled since %s, %s left", u.Since.UTC().Format(time.RFC3339),
		printable.Count(u.Left, "object"))
}

// BeginUninstall records that the release is being uninstalled. It removes the state of applies: if the release is
// applied again, deleted Jobs and the hooks of Deployments run again. A second call keeps the time of the first one.
func (r *Record) BeginUninstall(u Uninstall) {
	if r.Uninstall != nil {
		u.Since = r.Uninstall.Since
	}
	r.Uninstall, r.Run, r.Waits, r.Jobs, r.Hooks, r.KeptBy = &u, nil, nil, nil, nil, ""
}

// An UpdateState is the state of an update.
type UpdateState string

// The states, in the words of ClusterVersion.
const (
	Partial   UpdateState = "Partial"   // the update has begun
	Completed UpdateState = "Completed" // all objects were applied
)

// A History is the updates of a release, the newest first.
type History []HistoryEntry

// A HistoryEntry is one update in the history.
type HistoryEntry struct {
	Revision int         `json:"revision,omitempty"` // counted from 1, and never used again
	State    UpdateState `json:"state"`
	Version  string      `json:"version,omitempty"`
	Hash     string      `json:"hash,omitempty"` // hash of the payload
	// the hash of all the release's files, before filters; old entries have none
	Content   string       `json:"content,omitempty"`
	Source    string       `json:"source,omitempty"`
	Files     *KeptFiles   `json:"files,omitempty"` // nil in old entries
	Mode      string       `json:"mode,omitempty"`  // value of graph.Mode
	Started   metav1.Time  `json:"started"`
	Completed *metav1.Time `json:"completed,omitempty"`
	Forced    []string     `json:"forced,omitempty"` // the gates that were overridden
	// Hooks are the lifecycle hooks that users have skipped or run again.
	Hooks    []HookOverride `json:"hooks,omitempty"`
	Verified bool           `json:"verified,omitempty"` // whether the signatures of its image were verified
	Rollback *Rollback      `json:"rollback,omitempty"` // nil if the update was none
	// Capabilities are those that were enabled, if not all were.
	Capabilities []configv1.ClusterVersionCapability `json:"capabilities,omitempty"`
	// tombstones of the version; missing in some old entries
	Tombstones []kinds.ID `json:"tombstones,omitempty"`
	End        *End       `json:"end,omitempty"` // end of the last run, if that has not completed the update
	// tests of the release, by the last run of each
	FailedTests []ObjectFailure `json:"failedTests,omitempty"`
}

// NoteTests records which tests of the release have failed. Tests that were not run keep their result.
func (e *HistoryEntry) NoteTests(run []kinds.ID, failed []ObjectFailure) {
	e.FailedTests = slices.DeleteFunc(e.FailedTests, func(known ObjectFailure) bool {
		return slices.Contains(run, known.ID)
	})
	e.FailedTests = append(e.FailedTests, failed...)
}

// An End is when and why a run ended without completing its update. A run that was killed, or
// has lost its lock, has none.
type End struct {
	Time     metav1.Time     `json:"time"`
	Reason   string          `json:"reason,omitempty"` // reason as the cluster-version operator names it
	Message  string          `json:"message"`
	Failures []ObjectFailure `json:"failures,omitempty"` // the first ones; missing in some old entries
	More     int             `json:"more,omitempty"`     // failures that are left out
}

// ReasonLeftOut is the reason of an End if everything was applied but the manifests that the operator could not read.
const ReasonLeftOut = "ManifestsLeftOut"

// HasLeftOut reports whether everything was applied but the manifests that the operator could not read.
func (e *HistoryEntry) HasLeftOut() bool {
	return e != nil && e.End != nil && e.End.Reason == ReasonLeftOut
}

// An ObjectFailure is an object that was not applied, or was not ready.
type ObjectFailure struct {
	kinds.ID `json:",inline"`
	Hook     string `json:"hook,omitempty"` // hook of the object, if the hook has failed
	File     string `json:"file,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message"`
}

// A Tombstone is a requested delete.
type Tombstone struct {
	kinds.ID    `json:",inline"`
	UID         types.UID   `json:"uid,omitempty"`     // UID of the object to delete; "" if it was not observed yet
	Version     string      `json:"version,omitempty"` // the version that requested the delete
	RequestedAt metav1.Time `json:"asked"`
	IsBack      bool        `json:"isBack,omitempty"` // an earlier version had deleted it, and it was recreated
	Sent        bool        `json:"sent,omitempty"`   // the DELETE was sent; may be missing if the apply was killed
}

// A Leftover is the object of a tombstone that an install has found, and not deleted.
type Leftover struct {
	kinds.ID `json:",inline"`
	UID      types.UID `json:"uid"`
}

// An AppliedKind is a kind of objects, in any version.
type AppliedKind struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
}

// A Job is a finished Job.
type Job struct {
	kinds.ID `json:",inline"`
	UID      types.UID `json:"uid,omitempty"`
	Sum      string    `json:"sum,omitempty"` // checksum of the manifest
}

// An ObjectWait is an object or a hook that the applier waits for.
type ObjectWait struct {
	kinds.ID `json:",inline"`
	Hook     string      `json:"hook,omitempty"` // hook of the object, if the hook waits
	For      string      `json:"for"`
	Since    metav1.Time `json:"since"`
}

// updates is the mode of entries that delete, as package graph calls it.
const updates = "update"

// maxHistory bounds how many entries are kept: as many as in ClusterVersion.
const maxHistory = 100

// Begin records that an update begins. If the same update has begun before and is not
// complete, its start time, its revision and the gates that were overridden then are kept. A new update gets the next
// revision, unless it already has a higher one.
func (r *Record) Begin(e HistoryEntry) {
	number(r)
	e.State, e.Completed, e.End = Partial, nil, nil
	if e.Mode == updates { // an update deletes the objects of all its tombstones
		r.Left = nil
	}
	if newest := r.Newest(); newest != nil && newest.State == Partial && newest.Hash == e.Hash &&
		newest.Version == e.Version && e.Hash != "" {
		e.Started = newest.Started
		if newest.HasLeftOut() { // until the run ends otherwise, it counts as it was
			e.End = newest.End
		}
		e.Forced, e.Verified = joined(newest.Forced, e.Forced), newest.Verified || e.Verified
		e.Hooks = lastOverrides(append(slices.Clone(newest.Hooks), e.Hooks...))
		e.Revision, e.Files, e.Rollback = newest.Revision, newest.Files.Or(e.Files), cmp.Or(newest.Rollback, e.Rollback)
		*newest = e
		return
	}
	e.Revision = max(e.Revision, r.LastRevision+1)
	r.LastRevision = e.Revision
	r.History = slices.Insert(r.History, 0, e)
	r.Repairs = nil
	r.prune()
}

// joined returns the items of both lists, each once.
func joined(a, b []string) []string {
	all := slices.Clone(a)
	for _, name := range b {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// prune drops the oldest entries, except the first one, which has the time of the install,
// and the last completed one.
func (r *Record) prune() {
	applied := slices.IndexFunc(r.History, isCompleted)
	for i := len(r.History) - 2; len(r.History) > maxHistory && i > 0; i-- {
		if i != applied {
			r.History = slices.Delete(r.History, i, i+1)
		}
	}
}

func isCompleted(e HistoryEntry) bool { return e.State == Completed }

// Complete records that the newest update was completely applied.
func (r *Record) Complete(now metav1.Time) {
	if newest := r.Newest(); newest != nil && newest.State != Completed {
		newest.State, newest.Completed, newest.End = Completed, &now, nil
	}
}

// Stop records that a run of the newest update has ended without completing it.
func (r *Record) Stop(end End) {
	if newest := r.Newest(); newest != nil && newest.State != Completed {
		newest.End = &end
	}
}

// Newest returns the last update, completed or not; nil if there was none.
func (r *Record) Newest() *HistoryEntry {
	if len(r.History) == 0 {
		return nil
	}
	return &r.History[0]
}

// Applied returns the last completed update; nil if there was none.
func (r *Record) Applied() *HistoryEntry {
	index := slices.IndexFunc(r.History, isCompleted)
	if index < 0 {
		return nil
	}
	return &r.History[index]
}

// HasUpdated reports whether an update of an installed release was ever begun.
func (r *Record) HasUpdated() bool {
	return slices.ContainsFunc(r.History, func(e HistoryEntry) bool { return e.Mode == updates })
}

// RequestDelete records that a delete is requested. A second request for the same object
// changes nothing: the time of the first one is kept. An object that was not observed at the
// first request gets its UID, and another UID replaces that of the earlier object.
func (r *Record) RequestDelete(t Tombstone) {
	r.Left = slices.DeleteFunc(r.Left, func(remaining Leftover) bool { return remaining.ID == t.ID })
	index := slices.IndexFunc(r.Tombstones, func(known Tombstone) bool { return known.ID == t.ID })
	switch {
	case index < 0:
		r.Tombstones = append(r.Tombstones, t)
	case t.UID == "" || t.UID == r.Tombstones[index].UID:
	case r.Tombstones[index].UID == "":
		r.Tombstones[index].UID = t.UID
	default:
		r.Tombstones[index] = t
	}
}

// Leave records that an install has found the object of a tombstone, and replaces an earlier object of that name.
func (r *Record) Leave(l Leftover) {
	r.Left = slices.DeleteFunc(r.Left, func(known Leftover) bool { return known.ID == l.ID })
	r.Left = append(r.Left, l)
}

// WasLeft reports whether an install has left the object with a UID to be deleted by the next apply.
func (r *Record) WasLeft(id kinds.ID, uid types.UID) bool {
	return slices.Contains(r.Left, Leftover{ID: id, UID: uid})
}

// MarkSent records that the DELETE of an object is sent.
func (r *Record) MarkSent(id kinds.ID, uid types.UID) {
	for i := range r.Tombstones {
		if tombstone := &r.Tombstones[i]; tombstone.ID == id && tombstone.UID == uid {
			tombstone.Sent = true
		}
	}
}

// ForgetDelete records that an object was deleted as requested. The UID is that of RequestDelete, so that a new object
// of the same name is not affected. The state of its hooks is removed, too.
func (r *Record) ForgetDelete(id kinds.ID, uid types.UID) {
	r.RememberHooks(id, deploymenthook.State{})
	r.Tombstones = slices.DeleteFunc(r.Tombstones, func(known Tombstone) bool {
		return known.ID == id && known.UID == uid
	})
}

// AddKinds records applied kinds.
func (r *Record) AddKinds(kinds ...AppliedKind) {
	r.Kinds = append(r.Kinds, kinds...)
	slices.SortFunc(r.Kinds, func(a, b AppliedKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	r.Kinds = slices.Compact(r.Kinds)
}

// GroupKinds returns all kinds that were ever applied.
func (r *Record) GroupKinds() []schema.GroupKind {
	var all []schema.GroupKind
	for _, kind := range r.Kinds {
		all = append(all, schema.GroupKind{Group: kind.Group, Kind: kind.Kind})
	}
	return all
}

// RememberJob records that a Job finished, and replaces an earlier Job of that name.
func (r *Record) RememberJob(j Job) {
	r.ForgetJob(j.ID)
	r.Jobs = append(r.Jobs, j)
}

// FindJob returns a finished Job.
func (r *Record) FindJob(id kinds.ID) (Job, bool) {
	index := slices.IndexFunc(r.Jobs, func(known Job) bool { return known.ID == id })
	if index < 0 {
		return Job{}, false
	}
	return r.Jobs[index], true
}

// ForgetJob removes a finished Job, for example because it was deleted.
func (r *Record) ForgetJob(id kinds.ID) {
	r.Jobs = slices.DeleteFunc(r.Jobs, func(known Job) bool { return known.ID == id })
}

// Durations are the durations of the last completed run of a mode, in seconds, as an estimate for the next run.
type Durations struct {
	All   float64            `json:"all"`
	Nodes map[string]float64 `json:"nodes,omitempty"` // nodes of at least minRecordedDuration, by "level NN, component"
}

// minRecordedDuration is the minimum duration of a node to be recorded.
const minRecordedDuration = 100 * time.Millisecond

// Remember records the durations of a run of a mode, and of its nodes.
func (r *Record) Remember(mode string, all time.Duration, nodes map[string]time.Duration) {
	d := Durations{All: seconds(all), Nodes: map[string]float64{}}
	for name, took := range nodes {
		if took >= minRecordedDuration {
			d.Nodes[name] = seconds(took)
		}
	}
	durations := maps.Clone(r.Durations) // they may be read at the same time
	if durations == nil {
		durations = map[string]Durations{}
	}
	durations[mode] = d
	r.Durations = durations
}

// seconds returns a duration in seconds, rounded to a tenth.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }
