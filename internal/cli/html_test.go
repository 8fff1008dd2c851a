package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// checkReport fails the test unless a report is well-formed, needs no other file, has headings in order and named
// tables, and has none of the markup that objects in it have as their names.
func checkReport(t *testing.T, what, report string) {
	t.Helper()
	var isOpen []string
	ids, links := map[string]bool{}, map[string]bool{}
	lastHeading := byte('0')
	tokens := html.NewTokenizer(strings.NewReader(report))
	for tokens.Next() != html.ErrorToken {
		token := tokens.Token()
		switch token.Type {
		case html.StartTagToken:
			if wrong := wrongTag(token, ids, links); wrong != "" {
				t.Errorf("%s: %s in %s", what, wrong, token)
			}
			if name := token.Data; len(name) == 2 && name[0] == 'h' && name[1] > '0' && name[1] <= '6' {
				if name[1] > lastHeading+1 {
					t.Errorf("%s: heading %s comes after h%c", what, name, lastHeading)
				}
				lastHeading = name[1]
			}
			if slices.Contains(isOpen, "table") && isOpen[len(isOpen)-1] == "table" && token.Data == "thead" {
				t.Errorf("%s: a table has no caption", what)
			}
			if token.Data == "caption" {
				isOpen[len(isOpen)-1] = "named table"
			}
			if !slices.Contains([]string{"meta", "br", "hr"}, token.Data) {
				isOpen = append(isOpen, token.Data)
			}
		case html.EndTagToken:
			last := strings.TrimPrefix(isOpen[len(isOpen)-1], "named ")
			if last != token.Data {
				t.Fatalf("%s: </%s> ends <%s>", what, token.Data, last)
			}
			isOpen = isOpen[:len(isOpen)-1]
		}
	}
	if len(isOpen) > 0 || lastHeading < '2' {
		t.Errorf("%s: is not complete: %v is open", what, isOpen)
	}
	for link := range links {
		if !ids[strings.TrimPrefix(link, "#")] {
			t.Errorf("%s: link to %s leads nowhere", what, link)
		}
	}
	if line := harm(report); line != "" {
		t.Errorf("%s has the line %q", what, line)
	}
}

// wrongTag returns why a tag does not belong in a report, and notes its id and its link.
func wrongTag(token html.Token, ids, links map[string]bool) string {
	if slices.Contains([]string{"script", "link", "img", "iframe", "object", "base", "form", "hostile"}, token.Data) {
		return "unwanted element"
	}
	for _, attribute := range token.Attr {
		switch {
		case strings.HasPrefix(attribute.Key, "on"), attribute.Key == "style":
			return "code of its own"
		case attribute.Key == "src", attribute.Key == "href" && !strings.HasPrefix(attribute.Val, "#"):
			return "a reference to another file"
		case attribute.Key == "href":
			links[attribute.Val] = true
		case attribute.Key == "id" && ids[attribute.Val]:
			return "the same id twice"
		case attribute.Key == "id":
			ids[attribute.Val] = true
		}
	}
	return ""
}

// markup is shown as text in a report. Names of objects and files, values and reasons have it.
const markup = `</code></li><hostile onclick=alert(1)><script>alert(1)</script><img src=x>`

// releasesWithMarkup are the files of two releases, in the folders old and new, with such text, and with a value of
// 1 MB.
func releasesWithMarkup() map[string]string {
	quoted := fmt.Sprintf("%q", markup)
	configMap := func(name, rest string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: " + name + rest + "}\n"
	}
	return map[string]string{
		"old/0000_10_web_01.yaml": configMap("settings", "}, data: {a: x, list: \"one\\ntwo\"}"),
		"new/0000_10_web_01.yaml": configMap("settings", "}, data: {a: "+quoted+", list: \"one\\nthree\", long: "+
			strings.Repeat("y", 1_000)+"end, big: "+strings.Repeat("x", 1_000_000)+"}"),
		"old/0000_10_web_02.yaml": configMap("kept", "}"),
		"new/0000_10_web_02.yaml": configMap("kept", "}"),
		"old/0000_20_web_01.yaml": configMap("dropped", "}"),
		"old/0000_20_web_02.yaml": configMap("deleted", "}"),
		"new/0000_20_web_02.yaml": configMap("deleted",
			`, annotations: {release.openshift.io/delete: "true"}}`),
		"new/0000_20_<hostile>_3.yaml": configMap("created", ", labels: {"+quoted+": "+quoted+"}}"),
		"wrong/0000_30_web_01.yaml":    configMap(quoted, "}"),
		"wrong/0000_30_web_03.yaml": configMap("create-only",
			`, annotations: {release.openshift.io/delete: "true", release.openshift.io/create-only: "true"}}`),
		"wrong/0000_30_web_02.yaml": "# runlevel:ignore delete-value " + markup + "\n" +
			configMap("labels", ", annotations: {release.openshift.io/delete: "+quoted+"}}"),
	}
}

// TestPlanAndLintAsHTML checks the pages of releases with all kinds of changes, and with names that look like markup.
func TestPlanAndLintAsHTML(t *testing.T) {
	folder := t.TempDir()
	for name, text := range releasesWithMarkup() {
		write(t, filepath.Join(folder, name), text)
	}
	t.Chdir(folder)
	for _, each := range []struct {
		args  []string
		wants []string
	}{
		{[]string{"plan", "old", "new"}, []string{
			"Update from old to new", "Needs attention: 2 items", "warning ConfigMap shop/dropped:", "yend",
			"Left out: parts of 1 long value. This command shows all: runlevel plan old new --all", "Objects by action",
			"level 10 · web", "1 changed, 1 unchanged",
			"ConfigMap shop/settings", "0000_10_web_01.yaml:1", "data.a", "- x",
			"+ </code></li><hostile", "- two", "+ three",
			"dropped: it stays in the cluster", "to delete it, put this into 0000_20_web_01.yaml:",
			"deleted ConfigMap shop/deleted", "created ConfigMap shop/created",
		}},
		{[]string{"lint", "new", "--previous", "old"}, []string{
			"Lint of new, after old", "4 errors, 2 warnings", "old/0000_20_web_01.yaml, of the previous release",
			"error ConfigMap shop/dropped: it is no longer in the payload",
			"line 1, to fix in new/0000_20_web_02.yaml, rule dropped",
			"**How to fix it.** Keep the manifest and annotate it", "must be no more than 63 bytes",
		}},
		{[]string{"lint", "wrong", "--show-ignored"}, []string{
			"Lint of wrong", "1 ignored", "field metadata.name",
			"field metadata.annotations[release.openshift.io/create-only]",
			"ignored by wrong/0000_30_web_02.yaml:1: " + markup, markup,
		}},
	} {
		code, report := runCommand(append(each.args, "-o", "html"))
		if !strings.HasPrefix(report, "<!doctype html>") {
			t.Fatalf("%v: exit code %d: %s", each.args, code, report)
		}
		checkReport(t, each.args[0], report)
		if limit := 200_000; len(report) > limit {
			t.Errorf("%s: the report has %d bytes, want at most %d", each.args[0], len(report), limit)
		}
		for _, want := range each.wants {
			if !strings.Contains(textOf(report), want) {
				t.Errorf("%s: %q is missing in\n%s", each.args[0], want, textOf(report))
			}
		}
	}
}

// TestClusterAsHTML checks the pages of a release whose objects were changed, of an inspection and of a rehearsal.
func TestClusterAsHTML(t *testing.T) {
	folder := t.TempDir()
	object := func(kind, name, rest string) string {
		return "{apiVersion: v1, kind: " + kind + ", metadata: {namespace: default, name: pages-" + name + "}, " +
			rest + "}\n"
	}
	write(t, filepath.Join(folder, "release/0000_10_web_01.yaml"), object("ConfigMap", "settings", "data: {a: b}"))
	write(t, filepath.Join(folder, "release/0000_20_web_01.yaml"),
		object("Secret", "password", "stringData: {password: "+hiddenValues[0]+"}"))
	write(t, filepath.Join(folder, "broken/0000_10_web_01.yaml"),
		object("Service", "web", "spec: {ports: [{port: 80}], type: "+fmt.Sprintf("%q", markup)+"}"))
	t.Chdir(folder)
	cluster := []string{"--name", "pages", "--kubeconfig", control.Sandbox(t).Kubeconfig}
	apply := append([]string{"apply", "release", "--release-version", "1.0.0"}, cluster...)
	if code, output := runCommand(apply); code != 0 {
		t.Fatalf("exit code %d: %s", code, output)
	}
	client := control.Client(t).CoreV1()
	settings, err := client.ConfigMaps("default").Get(t.Context(), "pages-settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	settings.Data["a"] = markup
	if _, err := client.ConfigMaps("default").Update(t.Context(), settings,
		metav1.UpdateOptions{FieldManager: markup[:20]}); err != nil {
		t.Fatal(err)
	}
	if err := client.Secrets("default").Delete(t.Context(), "pages-password", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, each := range []struct {
		args  []string
		wants []string
	}{
		{append([]string{"status"}, cluster...), []string{
			"Release pages", "ConfigMap default/pages-settings", "changed since it was applied", markup[:20],
			"Secret default/pages-password", "1.0.0",
		}},
		{append([]string{"inspect", "report"}, cluster[2:]...), []string{
			"Inspection of 20", "Release pages", "release pages 1.0.0:", "releases/pages/record.yaml",
			"the status of the release", "kind: ConfigMap", "masked:", "no values of Secrets are in them",
		}},
		{append([]string{"plan", "broken", "--cluster"}, cluster...), []string{
			"Update of release pages on the cluster", "refused by the cluster", "refused Service default/pages-web",
			"level 10 · web", "dropped ConfigMap default/pages-settings",
			"Needs attention: 2 items", "problem Service default/pages-web: ",
		}},
		{[]string{"rehearse", "release", "broken", "--patience", "1s"}, []string{
			"Rehearsal of broken, after release", "rehearsed on Kubernetes v", "StageObjectsSeconds",
			"error Service default/pages-web: the API server refuses it", "How to fix it.",
			"rehearsal-left-behind",
		}},
	} {
		what := each.args[0]
		code, report := runForOutput(append(each.args, "-o", "html"))
		if code != 1 && what != "inspect" || !strings.HasPrefix(report, "<!doctype html>") {
			t.Fatalf("%s: exit code %d: %s", what, code, report)
		}
		checkReport(t, what, report)
		checkNoSecret(t, each.args, report)
		for _, want := range each.wants {
			if !strings.Contains(textOf(report), want) {
				t.Errorf("%s: %q is missing in\n%s", what, want, textOf(report))
			}
		}
	}
	code, output := runCommand(append([]string{"status", "--watch", "-o", "html"}, cluster...))
	if code != 2 || !strings.Contains(output, "--watch: -o html writes the state once") {
		t.Errorf("exit code %d: %s", code, output)
	}
}

// runForOutput runs a command, and returns its exit code and its output without messages.
func runForOutput(args []string) (code int, output string) {
	var out bytes.Buffer
	code = cli.Run(context.Background(), args, core.Streams{Out: &out, Err: io.Discard})
	return code, out.String()
}

// textOf returns the text that a reader of a report sees.
func textOf(report string) string {
	var text strings.Builder
	_, body, _ := strings.Cut(report, "</head>")
	tokens := html.NewTokenizer(strings.NewReader(body))
	for tokens.Next() != html.ErrorToken {
		if token := tokens.Token(); token.Type == html.TextToken {
			text.WriteString(token.Data)
		} else if token.Data == "li" || token.Data == "p" || token.Data == "h2" {
			text.WriteString("\n")
		}
	}
	return text.String()
}

// TestPlanFoldsWhatNeedsNoAttention plans many changes, and one object that stays behind.
func TestPlanFoldsWhatNeedsNoAttention(t *testing.T) {
	t.Chdir(t.TempDir())
	for side, count := range map[string]int{"old": 102, "new": 101} {
		for i := range count {
			write(t, fmt.Sprintf("%s/0000_%d_web_01.yaml", side, 10+i), fmt.Sprintf("{apiVersion: v1, kind: "+
				"ConfigMap, metadata: {name: c%d, namespace: shop}, data: {a: %s}}\n", i, side))
		}
	}
	code, report := runForOutput([]string{"plan", "old", "new", "-o", "html"})
	if open := strings.Count(report, "<details open>"); code != 0 || open != 2 ||
		!strings.Contains(report, "<details open><summary><h3>level 111 · web") {
		t.Errorf("exit code %d: %d groups and objects are open, want those of the dropped one\n%s", code, open, report)
	}
	if strings.Contains(report, "Left out") {
		t.Error("nothing is left out")
	}
}

// TestBigPlanAsHTML checks that the page of a big plan has limits, and the numbers of the rest.
func TestBigPlanAsHTML(t *testing.T) {
	folder := t.TempDir()
	for _, side := range []string{"old", "new"} {
		var text strings.Builder
		for i := range 10_100 {
			fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d, namespace: shop}, "+
				"data: {a: %s, b: %s}}\n", i, side, side)
		}
		write(t, filepath.Join(folder, side, "0000_10_web_01.yaml"), text.String())
	}
	t.Chdir(folder)
	code, report := runForOutput([]string{"plan", "old", "new", "-o", "html"})
	checkReport(t, "plan", report)
	want := "Left out: the details of 4999 objects, 100 more objects. This command shows all: runlevel plan old new"
	if code != 0 || !strings.Contains(textOf(report), want) {
		t.Errorf("exit code %d, and %q is missing in\n%s", code, want, report[len(report)-500:])
	}
	if count := strings.Count(report, "data.a"); count != 5_001 {
		t.Errorf("%d objects have details, want 5,001", count)
	}
}
