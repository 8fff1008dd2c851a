package precondition_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// crons are three manifests of one kind, and a tombstone.
func crons(t *testing.T) []*payload.Manifest {
	cron := func(name, annotation string) string {
		return "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: " + name +
			", namespace: web, annotations: {" + annotation + "}}\n"
	}
	return release(t, "4.6.0", map[string]string{
		"0000_10_web_a.yaml": cron("a", ""), "0000_10_web_b.yaml": cron("b", ""), "0000_10_web_c.yaml": cron("c", ""),
		"0000_10_web_d.yaml": cron("d", tombstoneAnnotation),
	}).Manifests
}

func TestObjectsOfOtherReleases(t *testing.T) {
	manifests := crons(t)
	f := &precondition.Facts{
		Claims: []precondition.Claim{{Manifest: manifests[0], Release: "db"}, {Manifest: manifests[3], Release: "db"}},
	}
	expect(t, f, `
Blocks ForeignObject: 0000_10_web_a.yaml: CronJob web/a is of release db, and can't be applied by this one; resolve by: dropping it here or in release db | CronJob web/a | 0000_10_web_a.yaml
Blocks ForeignObject: 0000_10_web_d.yaml: CronJob web/d is of release db, and can't be deleted by this one; resolve by: dropping it here or in release db | CronJob web/d | 0000_10_web_d.yaml`)
}

// One mistake is one finding, for all of its objects.
func TestOneCauseIsOneFinding(t *testing.T) {
	manifests := crons(t)
	f := &precondition.Facts{WithoutNamespace: manifests[:3]}
	for _, m := range manifests[:3] {
		f.Claims = append(f.Claims, precondition.Claim{Manifest: m, Release: "db"})
	}
	for _, namespace := range []string{"a", "b"} {
		for _, resource := range []string{"secrets", "services"} {
			f.Missing = append(f.Missing, precondition.Right{
				Verb:      "get",
				Resource:  schema.GroupResource{Resource: resource},
				Namespace: namespace,
				Manifests: manifests[:1],
			})
		}
	}
	expect(t, f, `
Blocks ForeignObject: 0000_10_web_a.yaml and 2 more manifests: CronJob web/a and 2 more are of release db, and can't be applied by this one; resolve by: applying them as release db, if it is the same one, or dropping them here or in release db | CronJob web/a | 0000_10_web_a.yaml
Blocks NoNamespace: 0000_10_web_a.yaml and 2 more manifests: CronJob web/a and 2 more are in no namespace, and objects of their kinds are in one; resolve by: writing metadata.namespace | CronJob web/a | 0000_10_web_a.yaml
Blocks MissingRights: this account may not get secrets, services in namespaces a, b, which 0000_10_web_a.yaml needs; resolve by: granting it with a Role in each namespace, or a ClusterRole | CronJob web/a | 0000_10_web_a.yaml`)
	if found := precondition.Evaluate(f); len(found[0].Objects) != 3 || found[0].Objects[2].Name != "c" {
		t.Errorf("got finding about objects %v", found[0].Objects)
	}
}

func TestUnservedKinds(t *testing.T) {
	manifests := crons(t)
	for name, test := range map[string]struct {
		unserved precondition.UnservedManifest
		count    int
		wanted   string
	}{
		"no version served": {precondition.UnservedManifest{}, 1,
			"Blocks UnservedKinds: 0000_10_web_a.yaml: the cluster does not serve CronJob in batch/v1beta1, nor any " +
				"other version of it; resolve by: dropping it here, or using a cluster of another version of " +
				"Kubernetes"},
		"other version": {precondition.UnservedManifest{Has: "v1"}, 2,
			"Blocks UnservedKinds: 0000_10_web_a.yaml and 1 more manifest: the cluster does not serve CronJob in " +
				"batch/v1beta1, only in batch/v1; resolve by: writing batch/v1 instead"},
		"ours has others": {precondition.UnservedManifest{
			Has:    "v1",
			InOurs: true,
		}, 1, "Blocks UnservedKinds: 0000_10_web_a.yaml: the release defines no CronJob in batch/v1beta1, only in " +
			"batch/v1; resolve by: writing batch/v1 instead, or serving v1beta1 too"},
		"not known": {precondition.UnservedManifest{Err: errors.New("no\nanswer")}, 3,
			`Warns UnservedKinds: 0000_10_web_a.yaml and 2 more manifests: cannot determine whether the cluster serves CronJob in batch/v1beta1: no\nanswer; resolve by: waiting for the server of batch/v1beta1`},
	} {
		t.Run(name, func(t *testing.T) {
			f := &precondition.Facts{}
			for _, m := range manifests[:test.count] {
				manifest := test.unserved
				manifest.Manifest = m
				f.Unserved = append(f.Unserved, manifest)
			}
			expect(t, f, test.wanted+" | CronJob web/a | 0000_10_web_a.yaml")
		})
	}
}

func TestMissingRights(t *testing.T) {
	manifests := crons(t)
	crons, nodes := schema.GroupResource{Group: "batch", Resource: "cronjobs"}, schema.GroupResource{Resource: "nodes"}
	for name, test := range map[string]struct {
		user    string
		err     error
		missing []precondition.Right
		wanted  string
	}{
		"none": {},
		"verbs of one place together": {user: "ana", missing: []precondition.Right{
			{Verb: "patch", Resource: crons, Namespace: "web", Manifests: manifests[1:3]},
			{Verb: "list", Resource: nodes, Manifests: manifests[2:3]},
			{Verb: "delete", Resource: crons, Namespace: "web", Manifests: manifests[3:4]},
			{Verb: "get", Resource: crons, Namespace: "web", Manifests: manifests[0:2]},
			{Verb: "get", Resource: crons, Namespace: "db", Manifests: manifests[0:1]},
		}, wanted: `
Blocks MissingRights: ana may not patch, delete, get cronjobs.batch in namespace web, which 0000_10_web_a.yaml and 3 more manifests need; resolve by: granting it with a Role in namespace web | CronJob web/a | 0000_10_web_a.yaml
Blocks MissingRights: ana may not list nodes, which 0000_10_web_c.yaml needs; resolve by: granting it with a ClusterRole | CronJob web/c | 0000_10_web_c.yaml
Blocks MissingRights: ana may not get cronjobs.batch in namespace db, which 0000_10_web_a.yaml needs; resolve by: granting it with a Role in namespace db | CronJob web/a | 0000_10_web_a.yaml`},
		"for the record": {missing: []precondition.Right{{
			Verb:      "create",
			Resource:  schema.GroupResource{Resource: "configmaps"},
			Namespace: "runlevel",
		}},
			wanted: "Blocks MissingRights: this account may not create configmaps in namespace runlevel, which the " +
				"record of release web needs; resolve by: granting it with a Role in namespace " +
				"runlevel"},
		"not known": {
			err:    errors.New("no\nanswer"),
			wanted: `Warns MissingRights: cannot determine whether this account has the rights that are needed: no\nanswer; resolve by: retrying when the cluster answers`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, &precondition.Facts{User: test.user, Missing: test.missing, RightsErr: test.err}, test.wanted)
		})
	}
}
