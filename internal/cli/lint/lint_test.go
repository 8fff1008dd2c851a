package lint_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// TestSARIF validates reports against the schema of SARIF 2.1.0: of good releases, of
// bad ones, of findings that are ignored, and of names that are odd.
func TestSARIF(t *testing.T) {
	stories, err := filepath.Abs("../../../examples/removals")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	writeOddRelease(t)
	for _, args := range [][]string{
		{"bad"}, {"bad", "--previous", filepath.Join(stories, "autoscaler/old")},
		{filepath.Join(stories, "svcat-actual/new"), "--previous", filepath.Join(stories, "svcat-actual/old")},
	} {
		var out, problems bytes.Buffer
		cli.Run(context.Background(), append([]string{"lint", "-o", "sarif"}, args...),
			core.Streams{Out: &out, Err: &problems})
		report, err := sarif.FromBytes(out.Bytes())
		if err != nil || problems.Len() > 0 {
			t.Fatalf("%v: %v, %s", args, err, &problems)
		}
		if err := report.Validate(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// writeOddRelease writes a release, bad, with names that are odd and findings that are
// ignored, and a configuration.
func writeOddRelease(t *testing.T) {
	t.Helper()
	write(t, "bad/0000_50_web_01 a#b?.yaml",
		"# runlevel:ignore delete-misspelt it is all right\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  "+
			"annotations: {release.openshift.io/deleted: 'true'}\n")
	write(t, "bad/0000_50_web_02.yaml", "[\n")
	write(t, "bad/0000_5_web_03.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"\\e[31m\\u2028\"}\n")
	write(t, ".runlevel-lint",
		"ignore: [{rule: no-namespace, reason: <b>it</b>}, {rule: nope}, {rule: duplicate, reason: x}]\n")
}

// TestJUnit validates reports against the schema of CI servers, and counts
// their elements: for valid and invalid releases, for errors, warnings and rules that were
// skipped, and for unusual names.
func TestJUnit(t *testing.T) {
	stories, err := filepath.Abs("../../../examples/removals")
	if err != nil {
		t.Fatal(err)
	}
	junit := readSchema(t, "testdata/junit.xsd")
	t.Chdir(t.TempDir())
	writeOddRelease(t)
	write(t, "good/0000_50_web_01.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kube-system}\n")
	write(t, "none", "")
	write(t, "odd/0000_50_web_01 ]]> <&>\x01\x7f\xff.yaml", "a: ]]>\n")
	write(t, "odd/0000_50_web_02.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"]]>\\0\\uFFFE\\uD7FF\\U0001F4A9<a>\"}\n")
	// Without a previous payload, all rules that compare the two are skipped.
	all := bytes.Count(lintJUnit(t, []string{"good", "--config", "none"}), []byte("<skipped"))
	for _, test := range []struct {
		args                     []string
		failed, skipped, hasText int
	}{
		{[]string{"good", "--config", "none"}, 0, all, 0},
		{[]string{"good", "--config", "none", "--off", "dropped,duplicate"}, 0, all - 1, 0},
		{[]string{"odd", "--config", "none"}, 3, all, 0},
		{[]string{"bad"}, 3, all, 2},
		{[]string{"bad", "--fail-on", "warning"}, 5, all, 0},
		{[]string{"bad", "--fail-on", "never"}, 0, all, 5},
		{[]string{"bad", "--previous", filepath.Join(stories, "autoscaler/old")}, 4, 2, 2},
	} {
		report := lintJUnit(t, test.args)
		if wrong := junit.validate(report); len(wrong) > 0 {
			t.Errorf("%v: %v", test.args, wrong)
		}
		var suites node
		if err := xml.Unmarshal(report, &suites); err != nil {
			t.Fatal(err)
		}
		suite := suites.Children[0]
		failed, skipped, texts := 0, 0, 0
		for _, c := range suite.Children {
			failed, skipped, texts = failed+len(c.all("failure")), skipped+len(c.all("skipped")), texts+
				len(c.all("system-out"))
		}
		if failed != test.failed || skipped != test.skipped || texts != test.hasText {
			t.Errorf("%v: %d rules failed, %d are skipped, %d have other findings; want %d, %d, %d", test.args, failed,
				skipped, texts, test.failed, test.skipped, test.hasText)
		}
		counts := []string{suite.attr("tests"), suite.attr("failures"), suite.attr("skipped"), suites.attr("tests"),
			suites.attr("failures")}
		tests := len(suite.Children)
		if want := fmt.Sprint([]int{tests, failed, skipped, tests, failed}); fmt.Sprint(counts) != want {
			t.Errorf("%v: got %v tests, failures and skipped, want %s", test.args, counts, want)
		}
		if again := lintJUnit(t, test.args); !bytes.Equal(report, again) {
			t.Errorf("%v: the same findings result in another report", test.args)
		}
	}
}

func lintJUnit(t *testing.T, args []string) []byte {
	t.Helper()
	var out, problems bytes.Buffer
	cli.Run(context.Background(), append([]string{"lint", "-o", "junit"}, args...),
		core.Streams{Out: &out, Err: &problems})
	if problems.Len() > 0 {
		t.Fatalf("%v: %s", args, &problems)
	}
	return out.Bytes()
}

// TestGitHubCommands checks that each finding is one command with intact properties, for any
// characters in a name.
func TestGitHubCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "odd/0000_50_web_01 a:b,c%d\n::error::e.yaml", "apiVersion: v1\nkind: \"Config\\eMap\"\n")
	write(t, "odd/0000_50_web_02.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"100%25\\n::warning::x\"}\n")
	var out, problems bytes.Buffer
	cli.Run(context.Background(), []string{"lint", "odd", "-o", "github", "--off", "invalid-name"},
		core.Streams{Out: &out, Err: &problems})
	commands := []string{
		`::error file=odd/0000_50_web_01 a%3Ab%2Cc%25d%0A%3A%3Aerror%3A%3Ae.yaml,line=1,col=1,title=not-a-manifest::Config\x1bMap: metadata.name is missing`,
		`::error file=odd/0000_50_web_02.yaml,line=3,col=1,title=no-namespace::ConfigMap 100%2525\n::warning::x: ConfigMap is a namespaced kind, and this object has no namespace: write metadata.namespace`,
	}
	want := strings.Join(commands, "\n") + "\n2 errors, 0 warnings, 0 notes\nnot checked"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("got output\n%s\nwant\n%s", out.String(), want)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
