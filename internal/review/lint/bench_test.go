package lint_test

import (
	"cmp"
	"fmt"
	"os"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// BenchmarkLint lints a real release: the cost beside loading it, without the
// schemas and with them.
func BenchmarkLint(b *testing.B) {
	folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if folder == "" {
		b.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	load := func() lint.Input {
		read, problems, err := payload.Parse(b.Context(), os.DirFS(folder), payload.Options{KeepText: true})
		if err != nil {
			b.Fatal(err)
		}
		return lint.Input{Payload: read, Problems: problems}
	}
	run := func(b *testing.B, off ...string) {
		severities := map[string]lint.Severity{}
		for _, rule := range off {
			severities[rule] = lint.Off
		}
		for b.Loop() {
			input := load()
			input.Config.Severities = severities
			if _, err := lint.Run(b.Context(), input); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			load()
		}
	})
	b.Run("load and lint without schemas", func(b *testing.B) {
		run(b, "definition", "custom-resource", "unknown-field")
	})
	b.Run("load and lint", func(b *testing.B) { run(b) })
}

// BenchmarkLintGrows shows that time grows with the number of manifests, and with
// nothing else: a tenth of the manifests are tombstones, and a tenth are new.
func BenchmarkLintGrows(b *testing.B) {
	for _, count := range []int{200, 2000, 20000} {
		b.Run(fmt.Sprint(count, " manifests"), func(b *testing.B) {
			read := func(files fstest.MapFS) *payload.Payload {
				read, _, err := payload.Parse(b.Context(), files, payload.Options{KeepText: true, Version: "1.2.3"})
				if err != nil {
					b.Fatal(err)
				}
				return read
			}
			input := lint.Input{
				Payload:  read(manyComponents(count, true)),
				Previous: read(manyComponents(count, false)),
			}
			for b.Loop() {
				if _, err := lint.Run(b.Context(), input); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*count), "us/manifest")
		})
	}
}

// manyComponents is a payload of components of ten manifests each: a Namespace, a
// ServiceAccount, a binding, a Deployment, its Service, and ConfigMaps. In the next one
// a tenth is deleted, a tenth dropped, and a tenth changed.
func manyComponents(count int, isNext bool) fstest.MapFS {
	files := fstest.MapFS{}
	for i := range count {
		component, part := i/10, i%10
		namespace := fmt.Sprintf("team-%d", component)
		if isNext && part == 9 {
			continue
		}
		kind, rest := "ConfigMap", "data: {a: b}\n"
		switch part {
		case 0:
			kind, rest = "Namespace", ""
		case 1:
			kind, rest = "ServiceAccount", ""
		case 2:
			kind, rest = "RoleBinding",
				fmt.Sprintf("roleRef: {kind: Role, name: a, apiGroup: rbac.authorization.k8s.io}\nsubjects: [{kind: "+
					"ServiceAccount, name: x1, namespace: %s}]\n", namespace)
		case 3:
			kind, rest = "Deployment", "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: "+
				"b}}, spec: {serviceAccountName: x1, containers: [{name: a, image: b}]}}}\n"
		case 4:
			kind, rest = "Service", "spec: {selector: {a: b}, ports: [{port: 80}]}\n"
		case 8:
			if isNext {
				rest = "data: {a: c}\n"
			}
		}
		apiVersion := map[string]string{"Deployment": "apps/v1", "RoleBinding": "rbac.authorization.k8s.io/v1"}[kind]
		metadata := fmt.Sprintf("name: x%d, namespace: %s", part, namespace)
		if kind == "Namespace" {
			metadata = "name: " + namespace
		}
		if isNext && part == 7 {
			metadata += `, annotations: {release.openshift.io/delete: "true"}`
		}
		text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {%s}\n%s", cmp.Or(apiVersion, "v1"), kind, metadata,
			rest)
		files[fmt.Sprintf("0000_%02d_team%d_%d.yaml", component%90+10, component, part)] = &fstest.MapFile{
			Data: []byte(text),
		}
	}
	return files
}
