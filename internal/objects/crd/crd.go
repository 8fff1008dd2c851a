// Package crd says whether a CustomResourceDefinition is one that the API server
// would accept, and whether a custom resource is what its definition says: structure,
// unknown fields, defaults, list types and CEL rules. It is pure and works offline.
//
// The judgement is the API server's own code, called in the same order as its create
// and update paths do. It judges no built-in kinds, and of metadata only what
// definitions may say of it: names and namespaces are the business of others. Nothing
// that it is given is changed.
//
// CheckDefinition is the call to start from; NewDefinition gives what checks custom
// resources.
package crd

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// A SchemaProblem is one field that the API server would refuse.
type SchemaProblem struct {
	Path    []string // keys of mappings and indexes of lists: {"spec", "versions", "0", "schema"}
	Message string   // one line: the field and what is wrong with it; no value of format password
	Missing bool     // the field must be there, and is not
	Unknown bool     // the field is not in the schema: the API server drops it, or refuses it when asked to be strict
}

// A Definition checks custom resources. Several goroutines may use it at once.
type Definition struct {
	scope    string
	group    string
	kind     string
	versions []*version
}

// Limit bounds what the CEL rules of a custom resource may cost, below what the API server allows. It is
// called before any is checked.
func (d *Definition) Limit(maxCost int64) {
	for _, v := range d.versions {
		v.maxCost = min(maxCost, celconfig.RuntimeCELCostBudget)
	}
}

// NewDefinition prepares a CustomResourceDefinition. It fails for those that
// CheckDefinition refuses as no definition at all, or for a schema that makes no sense.
// What is expensive waits for the first custom resource.
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

// Served are the names of the versions that are served, in the definition's order.
func (d *Definition) Served() []string {
	var names []string
	for _, v := range d.versions {
		if v.served {
			names = append(names, v.name)
		}
	}
	return names
}

// Scope is Namespaced or Cluster.
func (d *Definition) Scope() string { return d.scope }

// Check says why the API server would refuse to create a custom resource. A version
// that isn't served is the only problem then.
func (d *Definition) Check(ctx context.Context, object map[string]any) []SchemaProblem {
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

// CheckUpdate says why the API server would refuse to replace one custom resource by
// another of the same version. Unlike Check it looks at the rules that compare the two
// (oldSelf), and forgives what was as wrong before.
func (d *Definition) CheckUpdate(ctx context.Context, before, after map[string]any) []SchemaProblem {
	v, problems := d.versionOf(after)
	if problems != nil {
		return problems
	}
	if old, problems := d.versionOf(before); problems != nil || old != v {
		return []SchemaProblem{{Path: []string{"apiVersion"}, Message: fmt.Sprintf(
			"apiVersion: was %s before, so the two can't be compared", show(before["apiVersion"]))}}
	}
	old, oldReport := v.prepare(before)
	if old == nil {
		return []SchemaProblem{{Message: "what it was before can't be read: " + oldReport.problems()[0].Message}}
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

// keepStatus does what an update does where status is a subresource.
func keepStatus(after, before map[string]any) {
	delete(after, "status")
	if status, ok := before["status"]; ok {
		after["status"] = status
	}
}

// versionOf finds the version of a custom resource, or says why there is none.
func (d *Definition) versionOf(object map[string]any) (*version, []SchemaProblem) {
	apiVersion, ok := object["apiVersion"].(string)
	if !ok {
		return nil, []SchemaProblem{{Path: []string{"apiVersion"}, Message: "apiVersion: must be a string: " + d.wanted()}}
	}
	kind, ok := object["kind"].(string)
	if !ok || kind != d.kind {
		return nil, []SchemaProblem{{Path: []string{"kind"}, Message: fmt.Sprintf("kind: must be %s, not %s", show(d.kind), show(object["kind"]))}}
	}
	parsed, err := schema.ParseGroupVersion(apiVersion)
	if err == nil && parsed.Group == d.group {
		for _, v := range d.versions {
			if v.name == parsed.Version && v.served {
				return v, nil
			}
		}
	}
	return nil, []SchemaProblem{{Path: []string{"apiVersion"}, Message: fmt.Sprintf("apiVersion: %s is not served: %s", show(apiVersion), d.wanted())}}
}

// wanted says what to write as the apiVersion.
func (d *Definition) wanted() string {
	served := d.Served()
	if len(served) == 0 {
		return "the definition serves no version"
	}
	for i, name := range served {
		served[i] = show(d.group + "/" + name)
	}
	return "write " + strings.Join(served, " or ")
}
