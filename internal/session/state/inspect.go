package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The kinds of Kubernetes' API that an inspection reads.
var (
	eventKind = schema.GroupKind{Kind: "Event"}
)

// Bounds of what an inspection writes.
const (
	maxObjects  = 200    // objects that are not ready, per release
	maxLogLines = 20_000 // per container

	requestTimeout = 30 * time.Second // a slow kubelet may need it for a log
)

// operatorName is the name of the operator's Deployment, and the label of its pods.
const operatorName = "runlevel-operator"

// An Inspection is what an inspector writes, and where.
type Inspection struct {
	Folder   string                 // an existing one
	Version  any                    // version of this program
	Progress io.Writer              // gets a line for each step
	Text     func(*Status) []string // the status as text
}

// An inspector writes the state of the releases of a cluster into a folder. Objects that can't be read are noted. After
// the first file that can't be written, none is.
type inspector struct {
	*Reader
	of     Inspection
	report InspectReport
	failed error // why a file can't be written

	namespaces map[string]bool // namespaces whose events are written
}

// Inspect writes the state of the releases of the cluster into a folder. After an error, the folder is not complete.
func (r *Reader) Inspect(ctx context.Context, options Inspection) (*InspectReport, error) {
	i := &inspector{Reader: r, of: options, report: InspectReport{Folder: options.Folder, Files: []InspectedFile{}}}
	// Events on cluster-scoped objects are in namespace default.
	i.namespaces = map[string]bool{i.Namespace: true, metav1.NamespaceDefault: true}
	for _, step := range []struct {
		what string
		do   func(context.Context)
	}{
		{"the versions", i.versions},
		{"the releases", i.releases},
		{"the ClusterVersion and ClusterOperators", i.clusterVersion},
		{"the operator", i.operator},
		{"events", i.events},
	} {
		fmt.Fprintf(i.of.Progress, "reading %s\n", step.what)
		step.do(ctx)
		if err := errors.Join(i.failed, ctx.Err()); err != nil {
			return &i.report, err
		}
	}
	i.report.Time = i.Cluster.Now().UTC().Truncate(time.Second)
	return &i.report, nil
}

// note notes an object that could not be read. It ignores objects that do not exist, and kinds that are not served.
func (i *inspector) note(what string, err error) {
	if err == nil || apierrors.IsNotFound(err) || errors.Is(err, cluster.ErrNotServed) {
		return
	}
	i.noteText(what + ": " + err.Error())
}

func (i *inspector) noteText(text string) {
	if text = printable.Line(text); !slices.Contains(i.report.Unreadable, text) {
		i.report.Unreadable = append(i.report.Unreadable, text)
	}
}

// list returns the objects of a kind in a namespace; none if they can't be read.
func (i *inspector) list(ctx context.Context, kind schema.GroupKind, namespace,
	selector string) []unstructured.Unstructured {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := i.Cluster.List(ctx, kind, namespace, selector)
	i.note(kind.String(), err)
	return found
}

// get returns an object; none if it can't be read.
func (i *inspector) get(ctx context.Context, id kinds.ID) []unstructured.Unstructured {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := i.Cluster.Get(ctx, id)
	if err != nil {
		i.note(id.String(), err)
		return nil
	}
	return []unstructured.Unstructured{*found}
}

// versions writes the versions of Runlevel and of Kubernetes.
func (i *inspector) versions(context.Context) {
	server, err := i.Cluster.Client.Discovery().ServerVersion()
	i.note("the version of Kubernetes", err)
	i.writeJSON("versions.json", "the versions of this program and of the cluster",
		map[string]any{"runlevel": i.of.Version, "cluster": server})
}

// releases writes records, locks, and the status of the releases.
func (i *inspector) releases(ctx context.Context) {
	names := map[string]bool{}
	for _, object := range i.list(ctx, kinds.ConfigMap, i.Namespace, lock.Label) {
		name := lock.ReleaseOf(object.GetName())
		if object.GetName() != lock.Name(name) { // not a record: its contents are unknown
			continue
		}
		names[name] = true
		text, err := printable.YAML(withoutCopy(object.Object))
		i.write("releases/"+name+"/record.yaml", "applied kinds, history, last run, and hashes", text, err)
	}
	for _, object := range i.list(ctx, kinds.Lease, i.Namespace, lock.Label) {
		name := lock.ReleaseOf(object.GetName())
		names[name] = true
		i.writeObjects("releases/"+name+"/lease.yaml", "the lock, and its copy of the record", object)
	}
	if len(names) == 0 {
		names[payload.DefaultName] = true // the release of a ClusterVersion, if there is one
	}
	i.report.Releases = slices.Sorted(maps.Keys(names))
	for _, name := range i.report.Releases {
		i.release(ctx, name)
	}
}

// release writes the status of a release, and its objects.
func (i *inspector) release(ctx context.Context, name string) {
	status, err := i.Status(ctx, name)
	if err != nil {
		i.failed = cmp.Or(i.failed, err)
		return
	}
	for _, unknown := range status.Unknown {
		i.noteText(unknown)
	}
	folder := "releases/" + name + "/"
	i.writeLines(folder+"status.txt", "the status of the release", i.of.Text(status))
	i.writeJSON(folder+"status.json", "the status for programs, with all objects", status)
	i.objects(ctx, folder, name)
	i.failing(ctx, folder, status.Objects)
}

// objects writes a list of the objects that a release has on the cluster.
func (i *inspector) objects(ctx context.Context, folder, release string) {
	known, found, err := record.NewStore(i.Cluster.Client, i.Namespace, release).Load(ctx)
	if err != nil || !found && len(known.Kinds) == 0 {
		return // the status has the error
	}
	var lines []string
	for _, kind := range known.GroupKinds() {
		resource, err := i.Cluster.FindKind(ctx, kind)
		if err == nil {
			err = i.Cluster.EachMetadata(ctx, resource, "",
				metav1.ListOptions{LabelSelector: objectmeta.ReleaseLabel + "=" + release},
				func(m *metav1.PartialObjectMetadata) {
					lines = append(lines, objectLine(kind, m))
				})
		}
		i.note(kind.String()+" of release "+release, err)
	}
	slices.Sort(lines)
	i.writeLines(folder+"objects.txt", "the objects of the release on the cluster, and the times of their last writes",
		lines)
}

// objectLine returns the name, the versions and the managers of an object.
func objectLine(kind schema.GroupKind, m *metav1.PartialObjectMetadata) string {
	id := kinds.NewID(kind, m.Namespace, m.Name)
	line := fmt.Sprintf("%s uid=%s generation=%d resourceVersion=%s created=%s", id, m.UID, m.Generation,
		m.ResourceVersion, m.CreationTimestamp.UTC().Format(time.RFC3339))
	if m.DeletionTimestamp != nil {
		line += fmt.Sprintf(" deleted=%s finalizers=%s", m.DeletionTimestamp.UTC().Format(time.RFC3339),
			strings.Join(m.Finalizers, ","))
	}
	for _, entry := range m.ManagedFields {
		if entry.Time != nil {
			line += " " + strings.TrimSuffix(entry.Manager+"/"+entry.Subresource, "/") + "=" +
				entry.Time.UTC().Format(time.RFC3339)
		}
	}
	return line
}

// failing writes the objects of a release that are not ready.
func (i *inspector) failing(ctx context.Context, folder string, answers []*why.Answer) {
	for _, answer := range answers[:min(maxObjects, len(answers))] {
		id := answer.Object
		path := folder + "objects/" + cmp.Or(id.Namespace, "no-namespace") + "/" + id.GroupKind().String() + "/" +
			id.Name + ".yaml"
		i.writeObjects(path, id.String()+": "+answer.State.Text(), i.get(ctx, id)...)
		if id.Namespace != "" {
			i.namespaces[id.Namespace] = true
		}
	}
}

// clusterVersion writes the objects of OpenShift's API: the ClusterVersion and the ClusterOperators.
func (i *inspector) clusterVersion(ctx context.Context) {
	i.writeObjects("clusterversion.yaml", "the ClusterVersion", i.list(ctx, kinds.ClusterVersion, "", "")...)
	i.writeObjects("clusteroperators.yaml", "all ClusterOperators", i.list(ctx, kinds.ClusterOperator, "", "")...)
}

// operator writes the operator's Deployment, pods and logs.
func (i *inspector) operator(ctx context.Context) {
	deployment := kinds.NewID(kinds.Deployment, i.Namespace, operatorName)
	i.writeObjects("operator/deployment.yaml", "the operator's Deployment", i.get(ctx, deployment)...)
	pods := i.list(ctx, kinds.Pod, i.Namespace, "app.kubernetes.io/name="+operatorName)
	i.writeObjects("operator/pods.yaml", "its pods", pods...)
	for _, pod := range pods {
		containers, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
		for _, value := range containers {
			status, _ := value.(map[string]any)
			container, _ := status["name"].(string)
			restarts, _ := status["restartCount"].(int64)
			i.log(ctx, pod.GetName(), container, false)
			if restarts > 0 {
				i.log(ctx, pod.GetName(), container, true)
			}
		}
	}
}

// log writes the end of the log of a container, or of its previous run.
func (i *inspector) log(ctx context.Context, pod, container string, previous bool) {
	path, has := "operator/"+pod+"."+container+".log", "the log of pod "+pod
	if previous {
		path, has = "operator/"+pod+"."+container+".previous.log", "its log before it was restarted"
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options := &corev1.PodLogOptions{Container: container, Previous: previous, TailLines: new(int64(maxLogLines))}
	text, err := i.Cluster.Client.CoreV1().Pods(i.Namespace).GetLogs(pod, options).DoRaw(ctx)
	if err != nil {
		i.noteText(has + ": " + err.Error())
		return
	}
	i.writeLines(path, has, strings.Split(string(bytes.TrimRight(text, "\n")), "\n"))
}

// events writes the events of the namespaces of the inspection.
func (i *inspector) events(ctx context.Context) {
	for _, namespace := range slices.Sorted(maps.Keys(i.namespaces)) {
		i.writeObjects("events/"+namespace+".yaml", "the events in namespace "+namespace,
			i.list(ctx, eventKind, namespace, "")...)
	}
}

// An InspectReport lists the files of an inspection. It is the output of -o json.
type InspectReport struct {
	Folder     string          `json:"folder"`
	Time       time.Time       `json:"time"` // server time
	Releases   []string        `json:"releases,omitempty"`
	Files      []InspectedFile `json:"files"`
	Unreadable []string        `json:"unreadable,omitempty"` // unreadable resources, with the reasons
}

// An InspectedFile is a file of an inspection.
type InspectedFile struct {
	Path     string `json:"path"` // path in the folder
	Contents string `json:"contents"`
	Bytes    int    `json:"bytes"`
}
