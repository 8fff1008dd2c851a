package why_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/precondition"
)

var (
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web = kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	db  = kinds.ID{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}
)

// ago is a moment before now.
func ago(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }

// absent returns the facts about a missing object, which may have a record.
func absent(rec *record.Record) *why.ObjectFacts {
	return &why.ObjectFacts{
		ReleaseFacts: why.ReleaseFacts{Now: now, Record: rec, Run: runOf(rec), IsHeldKnown: true},
		Object:       web,
		Seen:         tombstone.Observation{State: tombstone.Absent},
	}
}

// runOf returns the run of a record, which may be nil.
func runOf(rec *record.Record) *apply.RunState {
	if rec == nil {
		return nil
	}
	return apply.StateOf(rec.Run)
}

// existing returns the facts about an existing object.
func existing(verdict ready.Verdict, rec *record.Record) *why.ObjectFacts {
	f := absent(rec)
	f.Seen.State, f.Live, f.Verdict = tombstone.Present, &unstructured.Unstructured{Object: map[string]any{}}, verdict
	f.Owner, f.Applied = "shop", now.Add(-time.Minute)
	return f
}

// held returns facts with a process that applies the release, and last renewed its lock some time ago.
func held(f *why.ObjectFacts, silent time.Duration) *why.ObjectFacts {
	f.Held = &lock.Holder{
		Name:     "ana@host:7",
		Since:    now.Add(-10 * time.Minute),
		Renewed:  now.Add(-silent),
		Duration: 30 * time.Second,
	}
	return f
}

// during returns the record of a release with the last report of an apply.
func during(nodes ...record.RunNode) *record.Record {
	return &record.Record{
		Release: "shop", History: record.History{{State: record.Partial, Version: "2", Started: *ago(time.Hour)}},
		Run: &record.Run{Version: "2", Mode: "update", ReportedAt: *ago(5 * time.Second), Nodes: nodes},
	}
}

// completed returns the record of a release after a complete apply.
func completed() *record.Record {
	return &record.Record{
		Release: "shop",
		History: record.History{{
			State:     record.Completed,
			Version:   "2",
			Started:   *ago(time.Hour),
			Completed: ago(time.Hour),
		}},
	}
}

// begun returns the record of a release whose update has begun, and has reported nothing.
func begun() *record.Record {
	rec := during()
	rec.Run = nil
	return rec
}

// node returns a node of the graph, with its steps.
func node(name, state string, after []int, steps ...record.RunStep) record.RunNode {
	return record.RunNode{Name: name, State: state, After: after, Steps: steps}
}

// awaits returns a step that waits until another object is ready.
func awaits(other kinds.ID) record.RunStep {
	runStep := step(web, apply.Blocked, "")
	runStep.Awaits = &other
	return runStep
}

func step(id kinds.ID, state apply.StepPhase, waits string) record.RunStep {
	runStep := record.RunStep{ID: id, State: string(state), For: waits}
	if state == apply.InWait || state == apply.InRetry {
		runStep.Since = ago(3 * time.Minute)
	}
	return runStep
}

var (
	isReady  = ready.Verdict{State: ready.Ready}
	notReady = ready.Verdict{State: ready.Waiting, Message: "0 of 1 replicas are available"}
	hasLost  = ready.Verdict{State: ready.Failed, Message: "its deadline has passed"}
	waiting  = hookOf("pre", apply.InWait, "pod shop-web-pre is pending") // hook of the Deployment
	blocked  = during(node("level 10, db", "running", nil, step(db, apply.InWait, "0 of 1 replicas are available")),
		node("level 20, api", "blocked", []int{0}),
		node("level 20, web", "blocked", []int{1}, step(web, apply.Blocked, "")))
	dead = blocked
)

// hookOf returns the step of a hook of the Deployment.
func hookOf(stage string, state apply.StepPhase, waits string) record.RunStep {
	runStep := step(web, state, waits)
	runStep.Hook = stage
	return runStep
}

// with returns changed facts.
func with(f *why.ObjectFacts, change func(*why.ObjectFacts)) *why.ObjectFacts {
	change(f)
	return f
}

// notKept changes facts to those of a release that the operator should keep in place, and does not.
func notKept(f *why.ObjectFacts) {
	f.NotKept = &why.NotKept{
		Reason: why.ReasonNotAvailable, Message: "no pod of the operator is available", Since: &ago(time.Minute).Time,
		Operator:   &kinds.ID{},
		Pods:       []string{"Pod runlevel-system/runlevel-operator-1: it crashes"},
		Resolution: "runlevel why deployment/runlevel-operator",
	}
}

func TestAnswers(t *testing.T) {
	tests := map[string]struct {
		facts *why.ObjectFacts
		state why.ObjectState
		want  string
	}{
		"its pre hook waits": {
			held(existing(isReady,
				during(node("level 10, web", "running", nil, waiting, step(web, apply.Blocked, ""),
					hookOf("post", apply.Blocked, "")))), time.Second), why.Outdated,
			"it waits for its pre hook, for 3m: pod shop-web-pre is pending\nrelease shop 2 is being applied by " +
				"ana@host:7, for 10m; its progress was last reported 5s ago\nit belongs to release shop, which " +
				"changed it " +
				"last 60s ago",
		},
		"its pre hook waits, and its pods are not ready": {
			held(existing(notReady,
				during(node("level 10, web", "running", nil, waiting, step(web, apply.Blocked, "")))),
				time.Second), why.NotReady,
			"it waits: 0 of 1 replicas are available\nit waits for its pre hook, for 3m: pod shop-web-pre is " +
				"pending\nrelease shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s " +
				"ago\nit belongs to release shop, which changed it last 60s ago",
		},
		"its post hook has failed": {
			held(existing(isReady, during(
				node("level 10, web", "running", nil, hookOf("post", apply.HasFailed, "exit code 1")),
			)), time.Second), why.NotReady,
			"its post hook has failed: exit code 1\nrelease shop 2 is being applied by ana@host:7, for 10m; its " +
				"progress was last reported 5s ago\nit belongs to release shop, which changed it last 60s ago",
		},
		"its post hook is to run": {
			held(existing(isReady, during(node("level 10, web", "running", nil, hookOf("post", apply.Blocked, "")))),
				time.Second), why.NotReady,
			"its post hook is still to run\nrelease shop 2 is being applied by ana@host:7, for 10m; its progress was " +
				"last reported 5s ago\nit belongs to release shop, which changed it last 60s ago",
		},
		"the hook of another object waits": {
			held(with(absent(during(node("level 10, web", "running", nil, waiting, step(web, apply.Blocked, "")),
				node("level 20, db", "blocked", []int{0}, step(db, apply.Blocked, "")))), func(f *why.ObjectFacts) {
				f.Object = db
			}), time.Second), why.Absent,
			"its turn, level 20, db, comes after level 10, web\nlevel 10, web waits for the pre hook of Deployment " +
				"shop/web, for 3m: pod shop-web-pre is pending\nrelease shop 2 is being applied by ana@host:7, for " +
				"10m; its progress was last reported 5s ago",
		},
		"it needs another object": {
			with(existing(notReady, completed()), func(f *why.ObjectFacts) {
				f.Unmet = []why.Need{{
					Object: db,
					Why:    "which does not exist (spec.name): no release is known to have it",
				}}
				f.NeededBy = []string{"Ingress shop/web (spec.x)", "Ingress shop/till (spec.x)"}
			}), why.NotReady,
			"it waits: 0 of 1 replicas are available\nit needs StatefulSet shop/db, which does not exist " +
				"(spec.name): " +
				"no release is known to have it\nneeded by Ingress shop/web (spec.x); Ingress shop/till (spec.x)\nno " +
				"process applies release shop 2 now: it was completed 60m ago\nit belongs to release shop, which " +
				"changed " +
				"it last 60s ago",
		},
		"ready": {existing(isReady, completed()), why.Ready,
			"it belongs to release shop, which changed it last 60s ago"},
		"ready, as the run has not noticed yet": {
			held(existing(isReady, during(node("level 20, web", "running", nil, step(web, apply.InWait, "0 of 1")))),
				0),
			why.Ready,
			"it belongs to release shop, which changed it last 60s ago",
		},
		"blocked by a blocked node": {
			held(with(absent(blocked), func(f *why.ObjectFacts) {
				f.Pending = map[kinds.ID][]string{db: {"Pod shop/db-0: it has no node"}}
			}), 0), why.Absent,
			`its turn, level 20, web, comes after level 20, api, and before that level 10, db
level 10, db waits for StatefulSet shop/db, for 3m: 0 of 1 replicas are available
  Pod shop/db-0: it has no node
release shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s ago`,
		},
		"the same, of one that has died": {
			held(absent(dead), time.Minute), why.Absent,
			`its turn, level 20, web, comes after level 20, api, and before that level 10, db
level 10, db waits for StatefulSet shop/db, for 3m: 0 of 1 replicas are available
ana@host:7, which applied release shop 2, has died: it last renewed its lock 60s ago; this was reported 5s ago; apply it again`,
		},
		"the same, of an operator that has died": {
			with(held(absent(dead), time.Minute), notKept), why.Absent,
			`its turn, level 20, web, comes after level 20, api, and before that level 10, db
level 10, db waits for StatefulSet shop/db, for 3m: 0 of 1 replicas are available
release shop 2 is not completed, and no process continues it, for 60s: no pod of the operator is available: runlevel why deployment/runlevel-operator
  Pod runlevel-system/runlevel-operator-1: it crashes`,
		},
		"missing, and the operator that keeps the release has died": {
			with(absent(completed()), func(f *why.ObjectFacts) { notKept(f); f.IsKnown = true }), why.Absent,
			`release shop 2 has it, and it was deleted since it was applied: the operator creates it again once it runs
release shop 2 was completed 60m ago, and is not kept in place, for 60s: no pod of the operator is available: runlevel why deployment/runlevel-operator
  Pod runlevel-system/runlevel-operator-1: it crashes`,
		},
		"after a node that has failed": {
			absent(withRun(during(node("level 10, db", "failed", nil, step(db, apply.HasFailed, "it is too large")),
				node("level 20, web", "blocked", []int{0}, step(web, apply.Blocked, ""))),
				func(r *record.Run) { r.Ended, r.Error = true, "StatefulSet shop/db: it is too large" })), why.Absent,
			`its turn, level 20, web, comes after level 10, db
level 10, db has failed: StatefulSet shop/db: it is too large
no process applies release shop 2 now: the last apply ended 5s ago, and not all was done (StatefulSet shop/db: it is too large); fix StatefulSet shop/db, then apply it again`,
		},
		"many nodes before": {
			held(absent(during(node("level 1, a", "running", nil), node("level 1, b", "running", nil),
				node("level 1, c", "running", nil), node("level 1, d", "running", nil),
				node("level 1, e", "running", nil),
				record.RunNode{
					Name:  "level 2, web",
					State: "blocked",
					After: []int{0, 1, 2, 3, 4},
					More:  7,
					Steps: []record.RunStep{step(web, apply.Blocked, "")},
				})), 0), why.Absent,
			`its turn, level 2, web, comes after level 1, a; level 1, b; level 1, c and 9 more
level 1, a is being applied
level 1, b is being applied
level 1, c is being applied
level 1, d is being applied
level 1, e is being applied
release shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s ago`,
		},
		"its apply fails": {
			held(absent(during(node("level 20, web", "running", nil, step(web, apply.InRetry, "exceeded quota")))), 0),
			why.Absent,
			`it can't be applied, which is retried, for 3m: exceeded quota
release shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s ago`,
		},
		"its apply has failed in a run that has died": {
			absent(during(node("level 20, web", "failed", nil, step(web, apply.HasFailed, "exceeded quota")))),
			why.Absent,
			`it can't be applied: exceeded quota
no process applies release shop 2 now: the last apply ended without a result, and its progress was last reported 5s ago; fix Deployment shop/web, then apply it again`,
		},
		"not ready": {
			held(with(existing(notReady,
				during(node("level 20, web", "running", nil, step(web, apply.InWait, "old news")))),
				func(f *why.ObjectFacts) {
					f.Pods = []string{"Pod shop/web-0: it crashes"}
				}), 0), why.NotReady,
			`it waits: 0 of 1 replicas are available, for 3m
  Pod shop/web-0: it crashes
release shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s ago
it belongs to release shop, which changed it last 60s ago`,
		},
		"never ready": {existing(hasLost, completed()), why.NotReady,
			`it has failed, and waiting does not help: its deadline has passed
no process applies release shop 2 now: it was completed 60m ago
it belongs to release shop, which changed it last 60s ago`},
		"there, and the run has not come to it": {
			held(existing(isReady, blocked), 0), why.Outdated,
			`its turn, level 20, web, comes after level 20, api, and before that level 10, db
level 10, db waits for StatefulSet shop/db, for 3m: 0 of 1 replicas are available
release shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s ago
it belongs to release shop, which changed it last 60s ago`,
		},
		"deleted, and not by the release": {absent(completed()), why.Absent,
			"release shop 2 was completed 60m ago: it was deleted since, or the release does not have it"},
		"nobody knows": {absent(nil), why.Absent,
			"no known release has it: none was applied yet, or its record is in another namespace"},
		"one of several": {
			with(absent(nil), func(f *why.ObjectFacts) { f.Others = 3 }), why.Absent,
			"none of the 3 releases here is known to have it: pass the name of its release",
		},
		"of another release": {
			with(existing(isReady, nil), func(f *why.ObjectFacts) {
				f.Plan = &why.ReleasePlace{Release: "db", File: "a.yaml"}
			}), why.Outdated,
			"it is in a.yaml\nrelease db was not applied yet\nit belongs to release shop, not to db",
		},
		"of a version that nobody has applied": {
			with(existing(isReady, completed()), func(f *why.ObjectFacts) {
				f.Plan = &why.ReleasePlace{
					Release: "shop",
					Version: "3",
					File:    "0000_20_web_10.yaml",
					Node:    "level 20, web",
					After:   []string{"level 10, db"},
				}
			}), why.Outdated,
			`it is in 0000_20_web_10.yaml, level 20, web, which comes after level 10, db
this version of release shop was not applied yet: the last is 2, completed 60m ago
it belongs to release shop, which changed it last 60s ago`,
		},
		"in an applied version": {
			with(existing(isReady, completed()), func(f *why.ObjectFacts) {
				f.Plan = &why.ReleasePlace{Release: "shop", File: "a.yaml", IsRecorded: true}
			}), why.Ready,
			"it belongs to release shop, which changed it last 60s ago",
		},
		"of a version of which nobody may read whether it is applied": {
			with(existing(isReady, nil), func(f *why.ObjectFacts) {
				f.Plan, f.IsUnread = &why.ReleasePlace{Release: "db", File: "a.yaml"}, true
			}), why.Ready,
			"it belongs to release shop, not to db",
		},
		"in an install, its dependency is in another node": {
			held(absent(during(node("level 10, db", "running", nil,
				step(db, apply.InWait, "0 of 1 replicas are available")),
				node("level 20, web", "running", nil, awaits(db)))), 0), why.Absent,
			`its turn, level 20, web, comes when StatefulSet shop/db is ready
level 10, db waits for StatefulSet shop/db, for 3m: 0 of 1 replicas are available
release shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s ago`,
		},
		"deleted as requested": {
			with(absent(completed()), func(f *why.ObjectFacts) {
				f.PendingDelete = &record.Tombstone{ID: web, Version: "2", RequestedAt: *ago(time.Hour)}
			}), why.Deleted,
			"version 2 requested its delete 60m ago",
		},
		"terminating": {
			with(existing(isReady, completed()), func(f *why.ObjectFacts) {
				f.Seen = tombstone.Observation{
					State:      tombstone.Terminating,
					Since:      now.Add(-time.Minute),
					Finalizers: []string{"a/b", "c/d"},
				}
				f.PendingDelete, f.Holders = &record.Tombstone{ID: web, Version: "2"}, map[string]string{"a/b": "ana"}
			}), why.Terminating,
			`version 2 deletes it: terminating for 60s, held by finalizers a/b, c/d
  finalizer a/b: set by ana; its controller removes it
  finalizer c/d: its controller removes it
  if that controller does not exist any more: kubectl patch deployment.apps/web --namespace=shop --type=merge -p '{"metadata":{"finalizers":null}}'
no process applies release shop 2 now: it was completed 60m ago
it belongs to release shop, which changed it last 60s ago`,
		},
		"terminating, of a release that has it": {
			with(existing(isReady, completed()), func(f *why.ObjectFacts) {
				f.Seen = tombstone.Observation{State: tombstone.Terminating, Since: now.Add(-time.Minute)}
			}), why.Terminating,
			`its delete was requested: terminating for 60s
an apply creates it again once it is deleted
no process applies release shop 2 now: it was completed 60m ago
it belongs to release shop, which changed it last 60s ago`,
		},
		"terminating, of a release during its uninstall": {
			with(existing(isReady, completed()), func(f *why.ObjectFacts) {
				f.Seen = tombstone.Observation{State: tombstone.Terminating, Since: now.Add(-time.Minute)}
				f.Record.Uninstall = &record.Uninstall{
					Since: metav1.NewTime(now.Add(-time.Minute)),
					By:    "ana@host:7",
					Left:  3,
				}
			}), why.Terminating,
			`its delete was requested: terminating for 60s
release shop 2 is being uninstalled since 2026-01-02T03:03:05Z, 3 objects left; no process continues that: run "runlevel uninstall shop" to continue, or "runlevel apply --force" to apply the release again
it belongs to release shop, which changed it last 60s ago`,
		},
		"terminating, of no release": {
			with(existing(isReady, nil), func(f *why.ObjectFacts) {
				f.Seen, f.Owner = tombstone.Observation{State: tombstone.Terminating, Since: now.Add(-time.Minute)}, ""
			}), why.Terminating,
			`its delete was requested: terminating for 60s
no known release has it: none was applied yet, or its record is in another namespace
it does not belong to a release: neither its label nor its managedFields name one`,
		},
		"its delete was requested, and then the release wants it back": {
			held(with(absent(blocked), func(f *why.ObjectFacts) {
				f.PendingDelete = &record.Tombstone{ID: web, Version: "1"}
			}), 0), why.Absent,
			`its turn, level 20, web, comes after level 20, api, and before that level 10, db
level 10, db waits for StatefulSet shop/db, for 3m: 0 of 1 replicas are available
release shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s ago`,
		},
		"the gate": {
			with(absent(completed()), func(f *why.ObjectFacts) {
				f.Plan = &why.ReleasePlace{
					Release: "shop",
					Version: "3",
					File:    "0000_20_web_10.yaml",
					Node:    "level 20, web",
					After:   []string{"level 10, db"},
				}
				f.Gate = []precondition.Finding{{
					Check:      "OlderVersion",
					Message:    "it is older",
					Resolution: "nobody",
				}}
			}), why.Absent,
			`it is in 0000_20_web_10.yaml, level 20, web, which comes after level 10, db
an apply of the release would be refused
  OlderVersion: it is older; resolve by: nobody
this version of release shop was not applied yet: the last is 2, completed 60m ago`,
		},
		"an unserved kind, in a terminating namespace": {
			with(absent(nil), func(f *why.ObjectFacts) {
				f.Unserved = &why.UnservedKind{
					Definition: "deployments.apps",
					Verdict:    ready.Verdict{State: ready.Waiting, Message: "it is not established"},
				}
				f.ObjectNamespace = &tombstone.Observation{
					State:   tombstone.Terminating,
					Since:   now.Add(-time.Minute),
					Remains: []string{"1 Pod"},
				}
			}), why.Absent,
			`the cluster does not serve kind Deployment.apps yet: CustomResourceDefinition deployments.apps waits: it is not established
no object can be created in namespace shop: it is terminating for 60s (1 Pod)
no known release has it: none was applied yet, or its record is in another namespace`,
		},
		"a kind that the run has not come to": {
			held(with(absent(during(node("level 10, a", "running", nil), node("level 20, crd", "blocked", []int{0},
				record.RunStep{
					ID:    kinds.NewID(kinds.CustomResourceDefinition, "", "deployments.apps"),
					File:  "0000_20_crd_10.yaml",
					State: string(apply.Blocked),
				}))),
				func(f *why.ObjectFacts) { f.Unserved = &why.UnservedKind{} }), 0), why.Absent,
			`the cluster has no kind Deployment.apps: the release has not applied its definition yet, CustomResourceDefinition deployments.apps (level 20, crd)
release shop 2 is being applied by ana@host:7, for 10m; its progress was last reported 5s ago`,
		},
		"an apply that has just begun": {
			held(absent(begun()), 0), why.Absent,
			"release shop 2 is being applied by ana@host:7, for 10m; it has not reported its progress yet",
		},
		"there as it was, perhaps, when an apply has just begun": {
			held(with(existing(isReady, begun()), func(f *why.ObjectFacts) { f.Applied = now.Add(-2 * time.Hour) }),
				0), why.Unknown,
			`it is ready, and may not be updated yet: the apply has not reported whether it has reached it
release shop 2 is being applied by ana@host:7, for 10m; it has not reported its progress yet
it belongs to release shop, which changed it last 120m ago`,
		},
		"changed by an apply that has just begun": {
			held(existing(isReady, begun()), 0), why.Ready, "it belongs to release shop, which changed it last 60s ago",
		},
		"there as it was, perhaps, when an apply of much was killed": {
			held(with(existing(isReady, withRun(during(node("level 10, db", "running", nil)), func(r *record.Run) {
				r.More = 7
			})), func(f *why.ObjectFacts) {
				f.Applied = now.Add(-2 * time.Hour)
			}), time.Minute), why.Unknown,
			`it is ready, and may not be updated yet: the apply has not reported whether it has reached it
ana@host:7, which applied release shop 2, has died: it last renewed its lock 60s ago; this was reported 5s ago; apply it again
it belongs to release shop, which changed it last 120m ago`,
		},
		"not changed by an apply that has completed it": {
			held(with(existing(isReady, during(node("level 10, db", "running", nil))), func(f *why.ObjectFacts) {
				f.Applied = now.Add(-2 * time.Hour)
			}), 0), why.Ready,
			"it belongs to release shop, which changed it last 120m ago",
		},
		"not ready, in a release that a process keeps in place": {
			held(existing(notReady, completed()), 0), why.NotReady,
			`it waits: 0 of 1 replicas are available
release shop 2 was completed 60m ago; ana@host:7 has held its lock for 10m, and applies it or keeps it in place
it belongs to release shop, which changed it last 60s ago`,
		},
		"absent, in a release with left out manifests": {
			with(held(absent(begun()), 0), func(f *why.ObjectFacts) {
				f.Held.Name += " (watching)"
				f.Record.History[0].End = &record.End{Reason: record.ReasonLeftOut, Message: "1 part left out"}
			}), why.Absent,
			"release shop 2 is not completed (1 part left out): ana@host:7 (watching) keeps the applied objects in place",
		},
		"nobody knows, for nobody may read records": {with(absent(nil), func(f *why.ObjectFacts) { f.IsUnread = true }),
			why.Absent, ""},
		"nobody may look": {
			with(absent(completed()), func(f *why.ObjectFacts) {
				f.Seen = tombstone.Observation{State: tombstone.Unknown, Why: "forbidden"}
				f.IsHeldKnown = false
			}), why.Unknown,
			"it can't be read: forbidden\ncannot determine whether release shop 2 is being applied",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := why.Judge(test.facts)
			if isDone := test.state == why.Ready || test.state == why.Deleted; answer.State != test.state ||
				answer.Done != isDone {
				t.Errorf("got state %s, done %t, want %s", answer.State, answer.Done, test.state)
			}
			var lines []string
			for _, before := range answer.Messages {
				lines = append(lines, before.Text)
				for _, detail := range before.Details {
					lines = append(lines, "  "+detail)
				}
			}
			if got := strings.Join(lines, "\n"); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// with2 changes the run of a record.
func withRun(rec *record.Record, change func(*record.Run)) *record.Record {
	change(rec.Run)
	return rec
}

// A record may have wrong nodes. Judge must end nevertheless.
func TestRunThatMakesNoSense(t *testing.T) {
	answer := why.Judge(absent(during(
		node("level 10, a", "blocked", []int{1, 9}),
		node("level 20, web", "blocked", []int{0, 1, -1}, step(web, apply.Blocked, "")),
	)))
	if answer.State != why.Absent {
		t.Errorf("got state %s", answer.State)
	}
}
