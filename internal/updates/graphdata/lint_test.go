package graphdata_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/updates/graphdata"
)

func TestLint(t *testing.T) {
	image := "\narchitecture: amd64\nimage: registry.example/shop@sha256:" + strings.Repeat("0", 64) + "\n"
	for name, test := range map[string]struct {
		file, text string
		want       []string // beside the findings of the folder
	}{
		"nothing": {"blocked-edges/README.md", "", nil},
		"an edge to an older version": {"releases/1.3.0.yaml", "version: 1.3.0\nprevious: [1.4.0]" + image, []string{
			"error releases/1.3.0.yaml: an update leads from 1.4.0+amd64 to the older version 1.3.0+amd64",
			"releases/1.3.0.yaml: no channel has 1.3.0+amd64, so no cluster gets it"}},
		"a circle": {"raw/metadata.json", `{"1.4.0": {"io.openshift.upgrades.graph.previous.add": "1.4.2"}}`, []string{
			"error releases/1.4.0.yaml: an update leads from 1.4.2+amd64 to the older version 1.4.0+amd64: clusters " +
				"could go in circles, and Cincinnati refuses a graph with a circle"}},
		"unreachable and stuck": {"blocked-edges/1.4.4.yaml", "to: 1.4.4\nfrom: .*\n", []string{
			"channels/candidate.yaml: no update leads to 1.4.4+amd64",
			"channels/stable.yaml: no update leads to 1.4.4+amd64",
			"phases/1.4.4.yaml: no update in its channels leads to 1.4.4"}},
		"a channel without its barrier": {"channels/x.yaml", "name: x\nversions: [1.4.2, 1.5.0]\n", []string{
			"channels/x.yaml: no update leads from 1.4.2+amd64 to a newer version",
			"channels/x.yaml: no update leads to 1.5.0+amd64"}},
		"unknown versions": {"phases/x.yaml", "to: 1.6.0\n", []string{"phases/x.yaml: no release has version 1.6.0"}},
		"halts": {graphdata.HaltsFile, "- {to: 1.6.0, at: 2026-12-02T08:00:00Z, reason: r}\n", []string{
			"halts.yaml: no release has version 1.6.0"}},
		"dead ends": {"dead-ends/x.yaml", "version: 1.6.0\nreason: r\n", []string{
			"dead-ends/x.yaml: no release has version 1.6.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			files, _ := shop(t, map[string]string{test.file: test.text})
			data, err := graphdata.Read(files)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, finding := range data.Lint() {
				line := finding.File + ": " + finding.Message
				if finding.IsError {
					line = "error " + line
				}
				lines = append(lines, line)
			}
			want := append(test.want, "channels/candidate.yaml: no release has 1.4.9, so clusters are not offered it")
			for _, line := range lines {
				isWanted := func(text string) bool { return strings.HasPrefix(line, text) }
				if !slices.ContainsFunc(want, isWanted) {
					t.Errorf("not wanted: %s", line)
				}
				want = slices.DeleteFunc(want, isWanted)
			}
			if len(want) > 0 {
				t.Errorf("not found: %q", want)
			}
		})
	}
}
