package precondition

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// deprecatedMetric is the metric of an API server with the deprecated APIs that clients have requested since it
// started.
const deprecatedMetric = "apiserver_requested_deprecated_apis"

// maxMetrics limits the size of the metrics of an API server, in bytes.
const maxMetrics = 64 << 20

// maxMetricLine limits the length of a line of the metrics, in bytes.
const maxMetricLine = 1 << 20

// A DeprecatedAPI is a version of a resource that clients have requested, and that will not be served any more.
type DeprecatedAPI struct {
	schema.GroupVersionResource
	Removed  string            // version of Kubernetes that removes it
	Manifest *payload.Manifest // definition of the release that does not serve it; nil if Kubernetes removes it
}

// readDeprecated finds the APIs in use that the release's definitions stop serving. For a minor or major update of the
// cluster's own release, it also finds those that a later Kubernetes removes. Without the right to get the metrics of
// the API server, it finds none.
func (f *Facts) readDeprecated(ctx context.Context, c *cluster.Cluster) {
	isOfCluster := f.hop().isMinorOrMajor() && f.Record.Release == payload.DefaultName
	unserved := map[schema.GroupVersionResource]*payload.Manifest{}
	for _, narrowed := range f.Narrowed {
		object := narrowed.Manifest.Object()
		for _, version := range slices.Concat(narrowed.Change.Removed, narrowed.Change.Unserved) {
			unserved[schema.GroupVersionResource{
				Group: text(object, "spec", "group"), Version: version,
				Resource: text(object, "spec", "names", "plural"),
			}] = narrowed.Manifest
		}
	}
	if !isOfCluster && len(unserved) == 0 {
		return
	}
	requested, err := requestedDeprecated(ctx, c)
	if err != nil {
		return
	}
	for _, api := range requested {
		if api.Manifest = unserved[api.GroupVersionResource]; api.Manifest != nil || isOfCluster && api.Removed != "" {
			f.Deprecated = append(f.Deprecated, api)
		}
	}
}

// requestedDeprecated returns the deprecated APIs that clients have requested of the API server that answers.
func requestedDeprecated(ctx context.Context, c *cluster.Cluster) ([]DeprecatedAPI, error) {
	stream, err := c.Client.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var lines strings.Builder // of this metric alone: all metrics take much memory
	scanner := bufio.NewScanner(io.LimitReader(stream, maxMetrics))
	scanner.Buffer(nil, maxMetricLine)
	for scanner.Scan() {
		if strings.HasPrefix(scanner.Text(), deprecatedMetric) {
			lines.WriteString(scanner.Text() + "\n")
		} else if lines.Len() > 0 {
			break
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(lines.String()))
	if err != nil || families[deprecatedMetric] == nil {
		return nil, err
	}
	var found []DeprecatedAPI
	for _, metric := range families[deprecatedMetric].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = printable.Line(label.GetValue())
		}
		api := DeprecatedAPI{Removed: labels["removed_release"]}
		api.Group, api.Version, api.Resource = labels["group"], labels["version"], labels["resource"]
		if !slices.Contains(found, api) { // each subresource has a line
			found = append(found, api)
		}
	}
	return found, nil
}

// judgeDeprecated implements DeprecatedAPI.
func judgeDeprecated(f *Facts) []Finding {
	const resolution = "changing these clients to another version; audit events with k8s.io/deprecated name them"
	var findings []Finding
	for _, api := range f.Deprecated {
		requested := fmt.Sprintf("clients have requested %s in %s", api.Resource, api.GroupVersion())
		if m := api.Manifest; m != nil {
			findings = append(findings, warns(resolution, "%s, which %s stops serving", requested,
				files([]*payload.Manifest{m})).withFile(m))
		} else {
			findings = append(findings, warns(resolution, "%s, which Kubernetes %s removes", requested, api.Removed))
		}
	}
	return findings
}
