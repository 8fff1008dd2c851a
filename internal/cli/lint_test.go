package cli_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/runlevel/runlevel/internal/cli"
)

// TestSARIF validates reports against the schema of SARIF 2.1.0: of good releases, of
// bad ones, of findings that are ignored, and of names that are odd.
func TestSARIF(t *testing.T) {
	stories, err := filepath.Abs("../../examples/removals")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	write(t, "bad/0000_50_web_01 a#b?.yaml", "# runlevel:ignore delete-misspelt it is all right\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {release.openshift.io/deleted: 'true'}\n")
	write(t, "bad/0000_50_web_02.yaml", "[\n")
	write(t, "bad/0000_5_web_03.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"\\e[31m\\u2028\"}\n")
	write(t, ".runlevel-lint", "ignore: [{rule: no-namespace, reason: <b>it</b>}, {rule: nope}, {rule: duplicate, reason: x}]\n")
	for _, args := range [][]string{
		{"bad"}, {"bad", "--previous", filepath.Join(stories, "autoscaler/old")},
		{filepath.Join(stories, "svcat-actual/new"), "--previous", filepath.Join(stories, "svcat-actual/old")},
	} {
		var out, problems bytes.Buffer
		cli.Run(context.Background(), append([]string{"lint", "-o", "sarif"}, args...), cli.Streams{Out: &out, Err: &problems})
		report, err := sarif.FromBytes(out.Bytes())
		if err != nil || problems.Len() > 0 {
			t.Fatalf("%v: %v, %s", args, err, &problems)
		}
		if err := report.Validate(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
