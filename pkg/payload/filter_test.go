package payload_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/payload"
)

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
  annotations:
    release.openshift.io/major-version: "4,-5"
`

func TestFilteredManifests(t *testing.T) {
	capabilities := func(list string) *configv1.ClusterVersionCapabilitiesStatus {
		status, err := payload.ParseCapabilities(list)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	unmanaged := []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "here", Name: "a", Unmanaged: true}}
	for name, test := range map[string]struct {
		manifest string
		filter   payload.Filter
		out      string // why it is left out; empty when it is in
	}{
		"without a filter everything is in": {configMap("a"), payload.Filter{}, ""},
		"even a manifest for one profile": {configMap("a", `include.release.openshift.io/ha: "true"`),
			payload.Filter{}, ""},
		"a profile takes what includes it": {configMap("a", `include.release.openshift.io/ha: "true"`),
			payload.Filter{Profile: "ha"}, ""},
		"a profile leaves what does not": {configMap("a", `include.release.openshift.io/sno: "true"`),
			payload.Filter{Profile: "ha"}, "profile: include.release.openshift.io/ha unset"},
		"a profile excludes a manifest without annotations": {configMap("a"), payload.Filter{Profile: "ha"},
			"profile: include.release.openshift.io/ha unset"},
		"a profile wants exactly true": {configMap("a", `include.release.openshift.io/ha: "yes"`),
			payload.Filter{Profile: "ha"}, "profile: unrecognized value include.release.openshift.io/ha=yes"},

		"an excluded manifest is out": {configMap("a", `exclude.release.openshift.io/hosted: "true"`),
			payload.Filter{Exclude: "hosted"}, "exclude: exclude.release.openshift.io/hosted=true"},
		"one excluded elsewhere is in": {configMap("a", `exclude.release.openshift.io/other: "true"`),
			payload.Filter{Exclude: "hosted"}, ""},
		"no annotations exclude nothing": {configMap("a"), payload.Filter{Exclude: "hosted"}, ""},
		"the default feature set": {configMap("a", `release.openshift.io/feature-set: "Default,OKD"`),
			payload.Filter{FeatureSet: "Default"}, ""},
		"another feature set": {configMap("a", `release.openshift.io/feature-set: "OKD"`),
			payload.Filter{FeatureSet: "Default"},
			`feature-set: "Default" is required, and release.openshift.io/feature-set=OKD`},
		"a preview feature set": {configMap("a", `release.openshift.io/feature-set: "TechPreviewNoUpgrade"`),
			payload.Filter{FeatureSet: "TechPreviewNoUpgrade"}, ""},
		"no feature set is in every one": {configMap("a"), payload.Filter{FeatureSet: "TechPreviewNoUpgrade"}, ""},
		"an enabled gate": {configMap("a", `release.openshift.io/feature-gate: "New,-Old"`),
			payload.Filter{FeatureGates: []string{"New"}}, ""},
		"a disabled gate": {configMap("a", `release.openshift.io/feature-gate: "New"`),
			payload.Filter{FeatureGates: []string{}}, "feature-gates: feature gate New is required but not enabled"},
		"a gate that must be off": {configMap("a", `release.openshift.io/feature-gate: "-Old"`),
			payload.Filter{FeatureGates: []string{"Old"}},
			"feature-gates: feature gate Old is enabled but manifest requires it to be disabled"},
		"feature set and gate exclude": {configMap("a", `release.openshift.io/feature-gate: "New"`,
			`release.openshift.io/feature-set: "Default"`), payload.Filter{
			FeatureSet:   "Default",
			FeatureGates: []string{"New"},
		}, "feature-gates: both feature set and feature gate annotations are present: manifests may specify either a " +
			"feature set or a feature gate, but not both"},
		"the right major version": {crd, payload.Filter{MajorVersion: 4}, ""},
		"an excluded major version": {crd, payload.Filter{MajorVersion: 5},
			"major-version: major version 5 matches excluded version 5"},
		"an enabled capability": {configMap("a", `capability.openshift.io/name: Console+Build`),
			payload.Filter{Capabilities: capabilities("None,Console,Build")}, ""},
		"a disabled capability": {configMap("a", `capability.openshift.io/name: Console+Build`),
			payload.Filter{Capabilities: capabilities("None,Build")}, "capabilities: disabled capabilities: Console"},
		"a capability nobody knows": {configMap("a", `capability.openshift.io/name: Mine`),
			payload.Filter{Capabilities: capabilities("vCurrent")},
			"capabilities: unrecognized capability names: Mine"},
		"a capability known by its name": {configMap("a", `capability.openshift.io/name: Mine`),
			payload.Filter{Capabilities: capabilities("None,Mine")}, ""},
		"an override": {configMap("a"), payload.Filter{Overrides: unmanaged},
			"overrides: overridden"},
		"an override of something else": {configMap("b"), payload.Filter{Overrides: unmanaged}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, problems := parse(t, files(t, map[string]string{"0000_10_a_a.yaml": test.manifest}),
				payload.Options{Filter: test.filter})
			if err := payload.Refuse(problems); err != nil {
				t.Fatal(err)
			}
			out := ""
			if len(p.Excluded) > 0 {
				out = p.Excluded[0].Why()
			}
			if diff := cmp.Diff(test.out, out); diff != "" || len(p.Manifests)+len(p.Excluded) != 1 {
				t.Errorf("in: %v\n%s", names(p), diff)
			}
		})
	}
}

func TestTheMajorVersionIsTheReleases(t *testing.T) {
	for version, isIn := range map[string]bool{"4.21.0": true, "5.0.0": false, "": true} {
		p, _ := parse(t, files(t, map[string]string{"a.yaml": crd}), payload.Options{Version: version})
		if got := len(p.Manifests) == 1; got != isIn {
			t.Errorf("for version %q the manifest is in: %t", version, got)
		}
	}
}

func TestCapabilitiesEnabledByAnUpdate(t *testing.T) {
	capabilities, err := payload.ParseCapabilities("None,Build")
	if err != nil {
		t.Fatal(err)
	}
	options := payload.Options{Filter: payload.Filter{Capabilities: capabilities}}
	from, _ := parse(t, files(t, map[string]string{
		"a.yaml": configMap("a"), // object in the cluster
		"b.yaml": configMap("b", "capability.openshift.io/name: Console"),
	}), options)
	moved := files(t, map[string]string{
		"a.yaml": configMap("a", "capability.openshift.io/name: Build+Ingress"), // moves to a disabled capability
		"b.yaml": configMap("b", "capability.openshift.io/name: Console"),       // was never there
		"c.yaml": configMap("c", "capability.openshift.io/name: Insights"),      // new object
		"d.yaml": configMap("d", "capability.openshift.io/name: Mine"),          // only this release knows it
	})
	p, _ := parse(t, moved, options)
	enabled := payload.ImplicitlyEnabled(from, p)
	if diff := cmp.Diff([]configv1.ClusterVersionCapability{"Ingress"}, enabled); diff != "" {
		t.Fatal(diff)
	}
	options.Filter = options.Filter.WithCapabilities(append(enabled, "Mine"))
	after, _ := parse(t, moved, options)
	if diff := cmp.Diff([]string{"ConfigMap here/a", "ConfigMap here/d"}, names(after)); diff != "" {
		t.Error(diff)
	}
}

func TestParseCapabilities(t *testing.T) {
	for list, want := range map[string]string{
		"None,":            `an empty name in "None,": write a list such as vCurrent or None,Console`,
		"vcurrent":         `unknown baseline vcurrent: there are `,
		"v4.99,Console":    `unknown baseline v4.99: there are `,
		"Console,vCurrent": `the baseline vCurrent must come first in "Console,vCurrent"`,
	} {
		if _, err := payload.ParseCapabilities(list); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", list, err, want)
		}
	}
	status, err := payload.ParseCapabilities("vCurrent")
	if err != nil || len(status.EnabledCapabilities) != len(status.KnownCapabilities) {
		t.Errorf("vCurrent has %d of %d capabilities; %v", len(status.EnabledCapabilities),
			len(status.KnownCapabilities), err)
	}
}

func TestDuplicateObjects(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string
		want string
	}{
		"plainly": {configMap("x"), configMap("x"), "keep one of them"},
		"by profile": {
			configMap("x", `include.release.openshift.io/ha: "true"`),
			configMap("x", `include.release.openshift.io/sno: "true"`),
			"--profile chooses between them (ha | sno)",
		},
		"by feature set": {
			configMap("x", `release.openshift.io/feature-set: Default`),
			configMap("x", `release.openshift.io/feature-set: OKD`),
			"--feature-set chooses between them (Default | OKD)",
		},
		"by a feature set that has both": {
			configMap("x", `release.openshift.io/feature-set: Default`), configMap("x"), "keep one of them",
		},
		"by feature gate": {
			configMap("x", `release.openshift.io/feature-gate: New`),
			configMap("x", `release.openshift.io/feature-gate: "-New"`),
			"--feature-gates chooses between them (New | -New)",
		},
		"by exclusion": {
			configMap("x", `exclude.release.openshift.io/hosted: "true"`),
			configMap("x", `exclude.release.openshift.io/alone: "true"`),
			"--exclude chooses between them (hosted | alone)",
		},
		"by a major version, which this kind ignores": {
			configMap("x", `release.openshift.io/major-version: "4"`),
			configMap("x", `release.openshift.io/major-version: "5"`), "keep one of them",
		},
		"by major version": {
			strings.Replace(crd, "4,-5", "4", 1), strings.Replace(crd, "4,-5", "5", 1),
			"--major-version chooses between them (4 | 5)",
		},
		"by capability": {
			configMap("x", `capability.openshift.io/name: Mine`), configMap("x", `capability.openshift.io/name: Yours`),
			"--capabilities chooses between them (Mine | Yours)",
		},
		"tombstone and object": {
			configMap("x"), configMap("x", `release.openshift.io/delete: "true"`),
			"one deletes what another creates, without end: keep one of them",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := parse(t, files(t, map[string]string{
				"a.yaml": test.a,
				"b.yaml": configMap("other") + "---\n" + test.b,
			}), payload.Options{})
			if len(problems) != 1 {
				t.Fatal(lines(problems))
			}
			if _, advice, _ := strings.Cut(problems[0].String(),
				": the same object is in b.yaml:7: "); advice != test.want {
				t.Errorf("%s\nwant …%s", problems[0], test.want)
			}
		})
	}
}

func TestAFilterInUseDoesNotChooseAnyMore(t *testing.T) {
	_, problems := parse(t, files(t, map[string]string{
		"a.yaml": configMap("x", `include.release.openshift.io/ha: "true"`, `include.release.openshift.io/sno: "true"`),
		"b.yaml": configMap("x", `include.release.openshift.io/ha: "true"`),
	}), payload.Options{Filter: payload.Filter{Profile: "ha"}})
	want := []string{"a.yaml:1: document 1: ConfigMap here/x: the same object is in b.yaml:1: keep one of them"}
	if diff := cmp.Diff(want, lines(problems)); diff != "" {
		t.Error(diff)
	}
}

func TestUnrecognizedFilterValues(t *testing.T) {
	_, problems := parse(t, files(t,
		map[string]string{"a.yaml": configMap("a", "release.openshift.io/feature-set: Tech")}),
		payload.Options{Filter: payload.Filter{FeatureSet: "Default"}})
	if len(problems) != 1 || !problems[0].IsWarning() ||
		!strings.Contains(problems[0].Message, `it is left out: unrecognized value "Tech"`) {
		t.Error(lines(problems))
	}
}

func TestSameNameInTwoGroupsIsNotADuplicate(t *testing.T) {
	other := strings.Replace(configMap("x"), "apiVersion: v1", "apiVersion: example.com/v1", 1)
	if _, problems := parse(t, files(t, map[string]string{"a.yaml": configMap("x"), "b.yaml": other}),
		payload.Options{}); len(problems) > 0 {
		t.Error(lines(problems))
	}
}
