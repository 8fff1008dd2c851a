// Package crd checks whether the API server would accept a CustomResourceDefinition,
// and whether a custom resource conforms to its definition: structure, unknown
// fields, defaults, list types and CEL rules. It is pure and works offline.
//
// The checks are the API server's own code, called in the order of its create and
// update paths. The package checks no built-in kinds, and of metadata only the parts
// that a schema may restrict: names and namespaces are checked elsewhere. Arguments
// are not changed.
//
// Start with CheckDefinition; NewDefinition returns a checker of custom resources.
package crd

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// A Problem is one field that the API server would refuse.
type Problem struct {
	Path    []string // keys of mappings and indexes of lists: {"spec", "versions", "0", "schema"}
	Message string   // one line: the field and its problem; no value of format password
	Missing bool     // the field is required but missing
	Unknown bool     // the field is not in the schema: the API server drops it, or refuses it when asked to be strict
}

// A Definition checks custom resources. Several goroutines may use it at once.
type Definition struct {
	scope    string
	group    string
	kind     string
	versions []*version
}

// Limit bounds the cost of the CEL rules of a custom resource, below the API server's own limit. It has to be
// called before the first check.
func (d *Definition) Limit(maxCost int64) {
	for _, v := range d.versions {
		v.maxCost = min(maxCost, celconfig.RuntimeCELCostBudget)
	}
}

// NewDefinition prepares a CustomResourceDefinition. It fails if the object is no
// CustomResourceDefinition, or if a schema can't be read. Expensive preparations wait
// for the first custom resource.
func NewDefinition(object map[string]any) (*Definition, error) {
	crd, problems := decode(object)
	if crd == nil {
		return nil, fmt.Errorf("read the definition: %s", problems[0].Message)
	}
	d := &Definition{scope: string(crd.Spec.Scope), group: crd.Spec.Group, kind: crd.Spec.Names.Kind}
	for i := range crd.Spec.Versions {
		v, err := newVersion(crd, &crd.Spec.Versions[i])
		if err != nil {
			return nil, fmt.Errorf("read the schema of version %q: %w", crd.Spec.Versions[i].Name, err)
		}
		d.versions = append(d.versions, v)
	}
	return d, nil
}

// Served returns the names of the served versions, in the definition's order.
func (d *Definition) Served() []string {
	var names []string
	for _, v := range d.versions {
		if v.served {
			names = append(names, v.name)
		}
	}
	return names
}

// Scope returns Namespaced or Cluster.
func (d *Definition) Scope() string { return d.scope }

// Check returns the problems for which the API server would refuse to create a custom
// resource. If its version is not served, Check returns no other problem.
func (d *Definition) Check(ctx context.Context, object map[string]any) []Problem {
	v, problems := d.versionOf(object)
	if problems != nil {
		return problems
	}
	after, report := v.prepare(object)
	if after == nil {
		return report.problems()
	}
	if v.hasStatus {
		delete(after, "status") // a create can't set it
	}
	v.validate(ctx, nil, after, report)
	return report.problems()
}

// CheckUpdate returns the problems for which the API server would refuse to replace a
// custom resource by another of the same version. Unlike Check, it evaluates transition
// rules (oldSelf), and ignores errors of unchanged fields, as ratcheting does.
func (d *Definition) CheckUpdate(ctx context.Context, before, after map[string]any) []Problem {
	v, problems := d.versionOf(after)
	if problems != nil {
		return problems
	}
	if old, problems := d.versionOf(before); problems != nil || old != v {
		return []Problem{{Path: []string{"apiVersion"}, Message: fmt.Sprintf(
			"apiVersion: was %s before, so the two can't be compared", show(before["apiVersion"]))}}
	}
	old, oldReport := v.prepare(before)
	if old == nil {
		return []Problem{{Message: "the object before can't be read: " + oldReport.problems()[0].Message}}
	}
	updated, report := v.prepare(after)
	if updated == nil {
		return report.problems()
	}
	if v.hasStatus {
		keepStatus(updated, old)
	}
	report.secrets = append(report.secrets, oldReport.secrets...)
	v.validate(ctx, old, updated, report)
	return report.problems()
}

// keepStatus restores the status, as an update does if status is a subresource.
func keepStatus(after, before map[string]any) {
	delete(after, "status")
	if status, ok := before["status"]; ok {
		after["status"] = status
	}
}

// versionOf returns the version of a custom resource, or why there is none.
func (d *Definition) versionOf(object map[string]any) (*version, []Problem) {
	apiVersion, ok := object["apiVersion"].(string)
	if !ok {
		return nil, []Problem{{
			Path:    []string{"apiVersion"},
			Message: "apiVersion: must be a string: " + d.servedVersions(),
		}}
	}
	kind, ok := object["kind"].(string)
	if !ok || kind != d.kind {
		return nil, []Problem{{
			Path:    []string{"kind"},
			Message: fmt.Sprintf("kind: must be %s, not %s", show(d.kind), show(object["kind"])),
		}}
	}
	parsed, err := schema.ParseGroupVersion(apiVersion)
	if err == nil && parsed.Group == d.group {
		for _, v := range d.versions {
			if v.name == parsed.Version && v.served {
				return v, nil
			}
		}
	}
	return nil, []Problem{{
		Path:    []string{"apiVersion"},
		Message: fmt.Sprintf("apiVersion: %s is not served: %s", show(apiVersion), d.servedVersions()),
	}}
}

// servedVersions returns advice on the apiVersion to write.
func (d *Definition) servedVersions() string {
	served := d.Served()
	if len(served) == 0 {
		return "the definition serves no version"
	}
	for i, name := range served {
		served[i] = show(d.group + "/" + name)
	}
	return "write " + strings.Join(served, " or ")
}
