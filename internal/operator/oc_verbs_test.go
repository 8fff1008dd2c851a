package operator_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// A moment is a state of the cluster, and the commands that are run in it.
type moment struct {
	name     string
	prepare  func()                              // changes the cluster; nil for no change
	until    func(*configv1.ClusterVersion) bool // the state; nil for that of the last command
	commands []string                            // arguments of oc
}

// play runs the commands of moments, and notes their output.
func (d *diary) play(moments []moment) {
	d.t.Helper()
	for _, m := range moments {
		if m.prepare != nil {
			m.prepare()
		}
		if m.until != nil {
			d.until(m.name, m.until)
		}
		var text strings.Builder
		for _, command := range m.commands {
			if strings.Contains(command, "DUMP") {
				d.names["DUMP"] = filepath.Dir(d.dump())
			}
			actual := command
			for name, value := range d.names {
				actual = strings.ReplaceAll(actual, name, value)
			}
			output, err := d.tryOC(strings.Fields(actual)...)
			text.WriteString("$ oc " + command + "\n" + output)
			if err != nil {
				text.WriteString("[" + err.Error() + "]\n")
			}
			text.WriteString("\n")
		}
		d.add(m.name, text.String())
	}
}

// both returns a test that holds if two others do.
func both(a, b func(*configv1.ClusterVersion) bool) func(*configv1.ClusterVersion) bool {
	return func(v *configv1.ClusterVersion) bool { return a(v) && b(v) }
}

// TestVerbsOfOpenShiftsClient compares the output of the verbs of OpenShift's client on a cluster that is not
// OpenShift. docs/operator.md has the table of verbs.
func TestVerbsOfOpenShiftsClient(t *testing.T) {
	t.Parallel()
	needsOC(t)
	service := newGraphServer(t)
	d := &diary{stage: begin(t, "1.0.0", shop+till)}
	d.report("till", "1.0.0")
	folder := t.TempDir()
	images := []string{d.options.Payload, d.push("1.0.1", shop+till), d.push("1.1.0", shop+till)}
	repository, _, _ := strings.Cut(images[0], "@")
	d.names = map[string]string{
		"IMAGE-1.0.0": images[0], "IMAGE-1.0.1": images[1], "IMAGE-1.1.0": images[2],
		"IMAGE-LOST": repository + "@sha256:" + strings.Repeat("c", 64), "FOLDER": folder,
	}
	const listed = "1.0.1, 1.1.0 Recommended=False SlowDisks"
	d.play(slices.Concat([]moment{
		{"installed, without an update service", nil,
			both(isAt("1.0.0"), has(configv1.RetrievedUpdates, configv1.ConditionFalse, "NoUpstream")), []string{
				"adm upgrade", "adm upgrade recommend", "adm upgrade recommend --version 1.0.1", "adm upgrade --clear",
				"adm upgrade --to 1.0.1", "adm upgrade --to-latest", "adm upgrade channel", "adm upgrade rollback",
				"adm upgrade status", "adm wait-for-stable-cluster --minimum-stable-period 1s",
				"adm upgrade channel stable",
			}},
		{"an update service", func() {
			service.serve(images...)
			d.specify(func(spec *configv1.ClusterVersionSpec) { spec.Upstream = configv1.URL(service.URL) })
		}, offers(listed), []string{
			"adm upgrade --include-not-recommended", "adm upgrade recommend",
			"adm upgrade recommend --show-outdated-releases", "adm upgrade recommend --version 1.0.1",
			"adm upgrade recommend --version 1.1.0",
			"adm upgrade recommend --version 1.1.0 --accept ConditionalUpdateRisk,FailedToCompletePrecheck",
			"adm upgrade recommend --version 1.1.0 --quiet", "adm upgrade channel nightly", "adm upgrade --to 1.1.0",
			"adm upgrade --to 1.2.0", "adm upgrade --to-image IMAGE-LOST", "adm upgrade accept SlowDisks,FastDisks",
		}},
	}, risksOfVerbs(d), updatesOfVerbs(d, service)))
	transcript.Expect(d.t, "testdata/oc-verbs.txtar", d.archive.Files)

	var files []string
	d.must(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(folder, path); err == nil && !entry.IsDir() {
			files = append(files, name)
		}
		return err
	}))
	for _, name := range []string{"release/0000_20_shop_10_settings.yaml", "release/release-metadata",
		"inspect/cluster-scoped-resources/config.openshift.io/clusteroperators/till.yaml"} {
		if !slices.Contains(files, name) {
			t.Errorf("no file %s, only %s", name, strings.Join(files, ", "))
		}
	}
	if text, err := os.ReadFile(filepath.Join(folder, "release/0000_20_shop_10_settings.yaml")); err != nil ||
		!strings.Contains(string(text), "version: 1.1.0") {
		t.Errorf("the extracted manifest is not that of 1.1.0: %s %v", text, err)
	}
}

// risksOfVerbs are the moments in which risks are accepted.
func risksOfVerbs(d *diary) []moment {
	upgradeable := func(status configv1.ConditionStatus) func() {
		return func() {
			d.report("till", "1.0.0", func(s *configv1.ClusterOperatorStatus) {
				s.Conditions = append(s.Conditions, condition(configv1.OperatorUpgradeable, status))
			})
		}
	}
	return []moment{
		{"a risk is accepted", nil, offers("1.1.0, 1.0.1, 1.1.0 Recommended=True AllExposedRisksAccepted"), []string{
			"adm upgrade", "adm upgrade recommend --version 1.1.0", "adm upgrade accept FastDisks-",
		}},
		{
			"a ClusterOperator is not upgradeable", upgradeable(configv1.ConditionFalse),
			offers("1.0.1, 1.1.0 Recommended=False ExposedToRisks"),
			[]string{"adm upgrade --include-not-recommended", "adm upgrade recommend"},
		},
		{"it is upgradeable again", upgradeable(configv1.ConditionTrue),
			offers("1.1.0, 1.0.1, 1.1.0 Recommended=True AllExposedRisksAccepted"),
			[]string{"adm upgrade accept --clear"}},
	}
}

// updatesOfVerbs are the moments in which updates are requested.
func updatesOfVerbs(d *diary, service *graphServer) []moment {
	isRefused := has("ReleaseAccepted", configv1.ConditionFalse, "RetrievePayload")
	return []moment{
		{"no risk is accepted", nil, offers("1.0.1, 1.1.0 Recommended=False SlowDisks"), []string{
			"adm upgrade --to-multi-arch",
		}},
		{"another architecture is requested", nil, has("Invalid", configv1.ConditionTrue, "InvalidClusterVersion"),
			[]string{"adm upgrade", "adm upgrade recommend", "adm upgrade --to 1.0.1", "adm upgrade --clear"}},
		{"it is cleared", nil, func(v *configv1.ClusterVersion) bool { return find(v, "Invalid").Type == "" }, []string{
			"adm upgrade --to-image IMAGE-LOST --allow-explicit-upgrade --force",
		}},
		{"a missing image is requested", nil, isRefused, []string{"adm upgrade", "adm upgrade --clear"}},
		{"it is cleared, too", nil, has("ReleaseAccepted", configv1.ConditionTrue, "PayloadLoaded"), []string{
			"adm upgrade --to-latest",
		}},
		{"the latest version is applied", nil,
			both(waitsFor("waiting on till"), offers("1.1.0 Recommended=False MultipleReasons")), []string{
				"adm upgrade", "adm upgrade recommend", "adm upgrade --to 1.1.0 --allow-not-recommended",
				"adm upgrade rollback", "adm upgrade status",
				"adm upgrade status --mock-clusterversion=DUMP/now-cv.yaml --details=all",
			}},
		{"it is applied", func() { d.report("till", "1.0.1") }, isAt("1.0.1"), []string{
			"adm upgrade status --mock-clusterversion=DUMP/now-cv.yaml", "adm upgrade rollback",
		}},
		{"the rollback is applied", func() {
			d.until("waiting", waitsFor("waiting on till"))
			d.report("till", "1.0.0")
		}, both(isAt("1.0.0"), offers("1.0.1, 1.1.0 Recommended=False SlowDisks")), []string{
			"adm upgrade", "adm upgrade rollback", "adm upgrade accept SlowDisks",
		}},
		{"the risk is accepted again", nil, offers("1.1.0, 1.0.1, 1.1.0 Recommended=True AllExposedRisksAccepted"),
			[]string{"adm upgrade --to 1.1.0"}},
		{"the next minor version is applied", func() {
			d.until("waiting", waitsFor("waiting on till"))
			d.report("till", "1.1.0")
		}, both(isAt("1.1.0"), offers("")), []string{
			"adm upgrade", "adm release info --insecure", "adm release info --insecure 1.0.0 1.1.0",
			"adm release extract --insecure --to FOLDER/release",
			"adm release extract --insecure --file release-metadata",
			"adm release extract --insecure --included --to FOLDER/included",
			"adm inspect --dest-dir FOLDER/inspect clusterversion,clusteroperators",
			"get clusterversion version -o jsonpath={range.status.history[*]}{.version}:{.acceptedRisks};{end}",
		}},
		{"the update service fails", func() {
			service.serve()
			d.specify(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "fast" })
		}, has(configv1.RetrievedUpdates, configv1.ConditionFalse, "ResponseFailed"), []string{
			"adm upgrade", "adm upgrade recommend",
		}},
	}
}
