package payload_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/pkg/payload"
)

// TestANewerTemplateIsTold from a broken one: an operator leaves out the former, and refuses the latter.
func TestANewerTemplateIsTold(t *testing.T) {
	for template, isNewer := range map[string]bool{
		`{{.Region}}`:                                  true,
		`{{.ReleaseImage.Digest}}`:                     true,
		`{{if .ReleaseImage}}{{.Region}}{{end}}`:       true,
		`{{region "eu"}}`:                              true,
		`{{len .Images}}`:                              true,
		`{{range .Images}}{{.}}{{end}}`:                true,
		`{{.Images.nope}}`:                             false,
		`{{index .Images "nope"}}`:                     false,
		`{{eq 1 "a"}}`:                                 false,
		`{{eq 1 "can't evaluate field A in type"}}`:    false,
		`{{eq 1 ">: can't evaluate field A in type"}}`: false,
		`{{.Region`:                                    false,
		`{{if}}`:                                       false,
	} {
		p, problems := rendered(t, template)
		isMissing := strings.Contains(template, "index") // an index of a map has no error
		if !isMissing && (len(problems) != 1 || problems[0].IsNewer != isNewer || problems[0].IsWarning()) {
			t.Errorf("%s: %+v, want one problem with IsNewer %t", template, problems, isNewer)
		}
		if !isMissing && len(p.Manifests) != 1 {
			t.Errorf("%s: the other manifests are %v", template, p.Manifests)
		}
	}
}

// TestNewerHooksLeaveOutTheirDeployment, if the reader wants that, and nothing beside it.
func TestNewerHooksLeaveOutTheirDeployment(t *testing.T) {
	deployment := func(hooks string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop, annotations: " +
			"{runlevel.dev/lifecycle-hooks: '" + hooks +
			"'}}\nspec: {template: {spec: {containers: [{name: web}]}}}\n" +
			"---\n" + configMap("beside")
	}
	for hooks, isNewer := range map[string]bool{
		`before: {}`: true,
		`pre: {execNewPod: {command: [a]}, cooldown: 5}`:          true,
		`pre: {execNewPod: {command: [a]}, failurePolicy: Pause}`: true,
		`pre: {execNewPod: {command: a}}`:                         false,
		`pre: [`:                                                  false,
	} {
		for _, leaveOut := range []bool{false, true} {
			p, problems := parse(t, release(t, map[string]string{"release-manifests/a.yaml": deployment(hooks)}),
				payload.Options{LeaveOutNewer: leaveOut})
			refused := payload.Refuse(problems) != nil
			want := 2
			if leaveOut && isNewer {
				want = 1
			}
			if !refused || hasNewer(problems) != isNewer || len(p.Manifests) != want {
				t.Errorf("%s, LeaveOutNewer %t: %+v and %d manifests, want IsNewer %t and %d", hooks, leaveOut,
					problems,
					len(p.Manifests), isNewer, want)
			}
		}
	}
}

func hasNewer(problems payload.Problems) bool {
	return slices.ContainsFunc(problems, func(p payload.Problem) bool { return p.IsNewer })
}

// TestAllOwnAnnotationsAreKnown: those that the code of any package declares.
func TestAllOwnAnnotationsAreKnown(t *testing.T) {
	declared := regexp.MustCompile(`(?i)annotation\w*\s*=\s*"(runlevel\.dev/[a-z-]+)"`)
	var names []string
	for _, root := range []string{"../../internal", "../../pkg"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
				names = append(names, found[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(names) < 10 {
		t.Fatalf("the annotations that were found are %v", names)
	}
	for _, name := range append(names, "runlevel.dev/shard-by", "runlevel.dev/hooks") {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop, annotations: {" + name +
			": 'true'}}\n"
		_, problems := parse(t, release(t, map[string]string{"release-manifests/a.yaml": text}), payload.Options{})
		isUnknown := len(problems) > 0 && problems[0].Cause == payload.UnknownAnnotation
		if isUnknown != (name == "runlevel.dev/shard-by") {
			t.Errorf("%s: %v", name, problems)
		}
	}
}
