package settings_test

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/release/settings"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestWrongSettingsAreRefused checks for one line with the field and the correction.
func TestWrongSettingsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"name: shop\nprofil: edge": "runlevel.yaml:2: unknown field profil: write profile",
		"feature-set: Default":     "runlevel.yaml:1: unknown field feature-set: write featureSet",
		"force: true":              "runlevel.yaml:1: unknown field force: it can have capabilities, ",
		"adoptFrom: [helm]":        "runlevel.yaml:1: unknown field adoptFrom: it can have ",
		"apiVersion: v1\nkind: ConfigMap": "runlevel.yaml:1: apiVersion is of a manifest, and this file has the " +
			"settings",
		"values: {a: b}":                "runlevel.yaml:1: unknown field values: manifests have no values;",
		"profile: [edge]":               `runlevel.yaml:1: profile can't have this value: write it as in "profile: production"`,
		"name: true":                    `runlevel.yaml:1: name can't have this value: write it as in "name: shop"`,
		"name:":                         `runlevel.yaml:1: name can't have this value`,
		"featureGates: Fast":            `runlevel.yaml:1: featureGates can't have this value: write it as in "featureGates: [Fast]"`,
		"featureGates: [1]":             "runlevel.yaml:1: featureGates can't have this value",
		"historyMax: many":              `runlevel.yaml:1: historyMax can't have this value: write it as in "historyMax: 10"`,
		"historyMax: 101":               "runlevel.yaml:1: historyMax: 101 can't be used: write a number from 1 to 100",
		"keepFiles: digest":             `runlevel.yaml:1: keepFiles: "digest" can't be used: write full or none`,
		"# a name\nname: Shop":          `runlevel.yaml:2: name: "Shop" can't be a name: `,
		"namespace: a/b":                `runlevel.yaml:1: namespace: "a/b" can't be a namespace: `,
		"version: v1.4":                 `runlevel.yaml:1: version: "v1.4" is not a semantic version such as 1.2.3`,
		"capabilities: [Console, None]": "runlevel.yaml:1: capabilities: the baseline None must come first",
		"name: shop\nname: web":         "runlevel.yaml:2: the field name occurs twice: leave one out",
		"- name":                        `runlevel.yaml:1: it must have fields, as in "name: shop"`,
		"name: [":                       "runlevel.yaml:1: ",
		"name: a\n---\nname: b":         `runlevel.yaml:2: the file has one document only: remove "---" and everything below it`,
	} {
		_, err := settings.Read(fstest.MapFS{payload.SettingsFile: {Data: []byte(text)}})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error is %v, want %s", text, err, want)
		}
	}
	_, err := settings.Read(fstest.MapFS{
		payload.SettingsFile: {Data: []byte("version: 1.0.0")},
		payload.MetadataFile: {},
	})
	if want := "runlevel.yaml:1: version: the version is already set in release-metadata: remove it here"; err == nil ||
		err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

// TestOnlyAFieldThatIsNotMisspelt may be one of a newer program, which an operator ignores: a misspelt filter would
// apply manifests that should be left out.
func TestOnlyAFieldThatIsNotMisspelt(t *testing.T) {
	for text, isNewer := range map[string]bool{
		"regions: [eu]": true, "profil: edge": false, "regions: [eu]\nexclud: edge": false,
		"exclud: edge\nregions: [eu]": false, "kind: ConfigMap": false, "values: {}": false,
	} {
		_, err := settings.Read(fstest.MapFS{payload.SettingsFile: {Data: []byte(text)}})
		var problems payload.Problems
		if !errors.As(err, &problems) || problems.AreNewer() != isNewer {
			t.Errorf("%q: %v, want IsNewer %t", text, err, isNewer)
		}
	}
}

// TestSettingsMayBeMissing or empty.
func TestSettingsMayBeMissing(t *testing.T) {
	for _, files := range []fstest.MapFS{{}, {payload.SettingsFile: {}},
		{payload.SettingsFile: {Data: []byte("# none\n")}}} {
		if got, err := settings.Read(files); err != nil || got.Name != "" {
			t.Errorf("%v: they are %v (%v)", files, got, err)
		}
	}
}

// TestTheSchemaHasEachField checks the schema, which editors use.
func TestTheSchemaHasEachField(t *testing.T) {
	text, err := os.ReadFile("../../../docs/schemas/runlevel-yaml.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for name := range schema.Properties {
		have = append(have, name)
	}
	for field := range reflect.TypeFor[settings.FolderSettings]().Fields() {
		if name := field.Tag.Get("yaml"); name != "" {
			want = append(want, name)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the schema has %v, want %v", have, want)
	}
}
