package operator

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/record"
)

func TestTargetOfClusterVersion(t *testing.T) {
	image := func(digit string) string { return "r.example/shop@sha256:" + strings.Repeat(digit, 64) }
	entry := func(version, source string) record.HistoryEntry {
		return record.HistoryEntry{Version: version, Source: source}
	}
	history := configv1.ClusterVersionStatus{
		History: []configv1.UpdateHistory{{State: configv1.CompletedUpdate, Version: "1.2.0", Image: image("3")}},
	}
	offered := configv1.ClusterVersionStatus{AvailableUpdates: []configv1.Release{{Version: "1.3.0", Image: image("4")},
		{Version: "1.4.0", Image: "r.example/shop:1.4.0"}}}
	build := func(version, image string) configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{Desired: configv1.Release{Version: version, Image: image}}
	}
	for name, c := range map[string]struct {
		update  *configv1.Update
		status  configv1.ClusterVersionStatus
		record  []record.HistoryEntry
		own     string
		began   string // the release of the operator that started the newest entry
		want    string // its image
		checked string // the image of its preflight
		wrong   string // the beginning of the error
	}{
		"nothing is applied": {own: image("1"), want: image("1")},
		"a restart after an update": {
			own:    image("1"),
			status: build("1.1.0", image("2")),
			record: record.History{entry("1.1.0", image("2")), entry("1.0.0", image("1"))},
			want:   image("2"),
		},
		"a restart before the status has the update": {own: image("1"), status: build("1.0.0", image("1")),
			update: &configv1.Update{Image: image("2")},
			record: record.History{entry("1.1.0", image("2")), entry("1.0.0", image("1"))}, want: image("2")},
		"a restart before the status has the update, which is requested by its version": {own: image("1"),
			status: offered, update: &configv1.Update{Version: "1.3.0"},
			record: record.History{entry("1.3.0", image("4")), entry("1.0.0", image("1"))}, want: image("4")},
		"a forged record": {
			own:    image("1"),
			status: build("1.1.0", image("2")),
			record: record.History{entry("1.2.0", image("9")), entry("1.0.0", image("1"))},
			want:   "",
		},
		"a forged record, and the ClusterVersion was recreated": {
			own:    image("1"),
			record: record.History{entry("1.2.0", image("9")), entry("1.0.0", image("1"))},
			want:   "",
		},
		"a forged entry behind a folder": {own: image("1"), status: build("1.1.0", image("2")),
			update: &configv1.Update{Version: "1.2.0"},
			record: record.History{entry("1.1.0", "/folder"), entry("1.2.0", image("9")), entry("1.0.0", image("1"))},
			want:   "", wrong: "spec.desiredUpdate.version: Invalid value"},
		"a forged entry of an offered version": {own: image("1"), status: offered,
			update: &configv1.Update{Version: "1.3.0"},
			record: record.History{entry("1.0.0", image("1")), entry("1.3.0", image("9"))}, want: image("4")},
		"a version of the past with a forged image": {own: image("1"), status: history,
			update: &configv1.Update{Version: "1.2.0"},
			record: record.History{entry("1.0.0", image("1")), entry("1.2.0", image("9"))}, want: image("3")},
		"a restart after so many updates that its own release is not in the history any more": {own: image("1"),
			began: image("1"), status: build("1.9.0", image("2")),
			record: record.History{entry("1.9.0", image("2")), entry("1.8.0", image("3"))}, want: image("2")},
		"a new operator after as many": {
			own:    image("5"),
			began:  image("1"),
			record: record.History{entry("1.9.0", image("2"))},
			want:   image("5"),
		},
		"a new operator": {own: image("5"), record: record.History{entry("1.0.0", image("1"))}, want: image("5")},
		"the command line applied a tag": {
			own:    image("1"),
			record: record.History{entry("1.0.0", "r.example/shop:1.0.0")},
			want:   image("1"),
		},
		"the record is lost, but for its newest entry": {own: image("1"),
			record: record.History{entry("1.2.0", image("3"))}, want: image("3"),
			status: configv1.ClusterVersionStatus{History: []configv1.UpdateHistory{{
				Version: "1.2.0",
				Image:   image("3"),
			}, {Version: "1.0.0", Image: image("1")}}}},
		"the record is lost": {own: image("3"), status: history, want: image("3")},
		"an image": {
			own:    image("1"),
			update: &configv1.Update{Image: image("2")},
			want:   image("2"),
		},
		"a version of the past": {
			own:    image("2"),
			status: history,
			update: &configv1.Update{Version: "1.2.0"},
			record: record.History{entry("1.1.0", image("2"))},
			want:   image("3"),
		},
		"an offered version": {
			own:    image("1"),
			update: &configv1.Update{Version: "1.3.0"},
			status: offered,
			want:   image("4"),
		},
		"a version without an offer": {
			own:    image("1"),
			update: &configv1.Update{Version: "9.9.9"},
			want:   image("1"),
			wrong:  `spec.desiredUpdate.version: Invalid value: "9.9.9"`,
		},
		"a version offered by a tag": {
			own:    image("1"),
			update: &configv1.Update{Version: "1.4.0"},
			status: offered,
			want:   image("1"),
			wrong:  "the image of version 1.4.0: Invalid value",
		},
		"a tag": {
			own:    image("1"),
			update: &configv1.Update{Image: "r.example/shop:1.0.0"},
			want:   image("1"),
			wrong:  "spec.desiredUpdate.image: Invalid value",
		},
		"a folder": {
			own:    image("1"),
			update: &configv1.Update{Image: "/var/run/secrets"},
			want:   image("1"),
			wrong:  "spec.desiredUpdate.image: Invalid value",
		},
		"a digest that leads elsewhere": {
			own:    image("1"),
			update: &configv1.Update{Image: "r.example/a@sha256:/../../../var/run/secrets"},
			want:   image("1"),
			wrong:  "spec.desiredUpdate.image: Invalid value",
		},
		"neither version nor image": {
			own:    image("1"),
			update: &configv1.Update{Force: true},
			want:   image("1"),
			wrong:  "spec.desiredUpdate: name a version, an image, or risks to accept",
		},
		"nothing, as once no risk is accepted any more": {
			own:    image("1"),
			update: &configv1.Update{},
			want:   image("1"),
		},
		"accepted risks only": {
			own:    image("1"),
			update: &configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "SlowDisks"}}},
			want:   image("1"),
		},
		"a version with accepted risks": {
			own:    image("1"),
			update: &configv1.Update{Version: "1.3.0", AcceptRisks: []configv1.AcceptRisk{{Name: "SlowDisks"}}},
			status: offered,
			want:   image("4"),
		},
		"a preflight": {
			own:     image("1"),
			update:  &configv1.Update{Image: image("2"), Mode: configv1.UpdateModePreflight},
			want:    image("1"),
			checked: image("2"),
		},
		"a preflight of an earlier version": {
			own:     image("1"),
			update:  &configv1.Update{Version: "1.2.0", Mode: configv1.UpdateModePreflight},
			status:  history,
			want:    image("1"),
			checked: image("3"),
		},
		"a preflight of the current release": {
			own:     image("2"),
			update:  &configv1.Update{Version: "1.1.0", Mode: configv1.UpdateModePreflight},
			status:  build("1.1.0", image("2")),
			record:  record.History{entry("1.1.0", image("2"))},
			want:    image("2"),
			checked: image("2"),
		},
		"a preflight of no release": {
			own: image("1"),
			update: &configv1.Update{
				AcceptRisks: []configv1.AcceptRisk{{Name: "A"}},
				Mode:        configv1.UpdateModePreflight,
			},
			want:  image("1"),
			wrong: "spec.desiredUpdate: name the version or the image to check",
		},
		"a preflight of a tag": {
			own:    image("1"),
			update: &configv1.Update{Image: "r.example/shop:1", Mode: configv1.UpdateModePreflight},
			want:   image("1"),
			wrong:  "spec.desiredUpdate.image: ",
		},
		"a forged record, and a preflight of its image": {
			own:     image("1"),
			update:  &configv1.Update{Image: image("9"), Mode: configv1.UpdateModePreflight},
			status:  build("1.1.0", image("2")),
			record:  record.History{entry("1.2.0", image("9")), entry("1.0.0", image("1"))},
			want:    "",
			checked: image("9"),
		},
		"an unknown mode": {
			own:    image("1"),
			update: &configv1.Update{Image: image("2"), Mode: "Preheat"},
			want:   image("1"),
			wrong: `spec.desiredUpdate.mode: Unsupported value: "Preheat": write "Preflight" to check the update, ` +
				"or remove the mode to begin it",
		},
		"another architecture of the same version": {own: image("1"), update: &configv1.Update{
			Version:      "1.2.0",
			Architecture: "Multi",
		}, want: image("1"), wrong: "spec.desiredUpdate.architecture: ",
			status: configv1.ClusterVersionStatus{Desired: configv1.Release{Version: "1.2.0"}}},
		"an available version in the architecture that the cluster has": {own: image("1"),
			update: &configv1.Update{Version: "1.3.0", Architecture: "Multi"}, want: image("4"),
			status: configv1.ClusterVersionStatus{
				Desired:          configv1.Release{Version: "1.2.0", Architecture: "Multi"},
				AvailableUpdates: offered.AvailableUpdates,
			}},
		"an architecture": {
			own:    image("1"),
			update: &configv1.Update{Architecture: "Multi"},
			want:   image("1"),
			wrong:  "spec.desiredUpdate.architecture: ",
		},
	} {
		v := &configv1.ClusterVersion{Spec: configv1.ClusterVersionSpec{DesiredUpdate: c.update}, Status: c.status}
		from := targetInputs{record: &record.Record{History: c.record, Own: c.began}, own: c.own}
		from.confirm(v)
		if from.isConfirmed {
			v.Status.History = from.historyOf(v)
		}
		got, wrong := choose(v, from)
		isWrong := len(wrong) == 1 && strings.HasPrefix(wrong[0], c.wrong)
		var checked string
		if got.Preflight != nil {
			checked = got.Preflight.Image
		}
		if got.Image != c.want || checked != c.checked || (c.wrong != "") != isWrong {
			t.Errorf("%s: %s, %q, and a preflight of %q", name, got.Image, wrong, checked)
		}
	}
}

// TestAcceptedRisksBeginAPreflightAgain: they change its result. They do not interrupt an update.
func TestAcceptedRisksBeginAPreflightAgain(t *testing.T) {
	for mode, want := range map[configv1.UpdateMode]bool{configv1.UpdateModePreflight: false, "": true} {
		request := func(risks ...configv1.AcceptRisk) *target {
			v := &configv1.ClusterVersion{Spec: configv1.ClusterVersionSpec{DesiredUpdate: &configv1.Update{
				Image: "r.example/shop@sha256:" + strings.Repeat("2", 64), Mode: mode, AcceptRisks: risks,
			}}}
			chosen, _ := choose(v, targetInputs{record: &record.Record{}})
			return chosen
		}
		first := request()
		if !first.isSame(request()) || first.isSame(request(configv1.AcceptRisk{Name: "SlowDisks"})) != want {
			t.Errorf("mode %q: a request with an accepted risk is the same: %t, want %t", mode, !want, want)
		}
	}
}
