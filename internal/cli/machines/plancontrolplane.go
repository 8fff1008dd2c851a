package machines

import (
	"context"
	"io"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
)

// runControlPlane previews what replaces the machines of a control plane.
func (f *machinesPlanFlags) runControlPlane(ctx context.Context, kind schema.GroupVersionKind, name string,
	streams core.Streams) error {
	preview, err := f.previewControlPlane(ctx, kind, name, streams.In)
	if err != nil {
		return err
	}
	text := func(out io.Writer) error { return core.PrintLines(out, preview.Lines()) }
	if err := f.format.PrintWhole(streams.Out, preview, text); err != nil {
		return err
	}
	return core.FailIf(preview.Degraded != "" || preview.IsStuck || preview.Unanswered != "")
}

// previewControlPlane reads the file, and previews an object of a kind.
func (f *machinesPlanFlags) previewControlPlane(ctx context.Context, kind schema.GroupVersionKind, name string,
	in io.Reader) (*rolloutpreview.ControlPlanePreview, error) {
	var text []byte
	if f.file != "" {
		var err error
		if text, err = readFileOr(f.file, in); err != nil {
			return nil, core.Misuse(err)
		}
	}
	if kind == rolloutpreview.RunlevelControlPlaneKind {
		return f.previewPlane(ctx, name, text)
	}
	return f.previewSet(ctx, name, text)
}

// previewSet previews a ControlPlaneMachineSet: that of the cluster, or of the text of a file.
func (f *machinesPlanFlags) previewSet(ctx context.Context, name string,
	text []byte) (*rolloutpreview.ControlPlanePreview, error) {
	if f.extension != "" || f.authority != "" {
		return nil, core.Misusef(
			"--extension is for machines of Cluster API: a ControlPlaneMachineSet updates no machine in place",
		)
	}
	q, inFile := rolloutpreview.ControlPlaneQuery{Name: name}, ""
	var err error
	if f.file != "" {
		if q.Wanted, err = rolloutpreview.ReadControlPlaneMachineSet(f.file, text, name); err != nil {
			return nil, core.Misuse(err)
		}
		inFile = q.Wanted.Namespace
	}
	if q.Namespace, err = f.namespaceOf(rolloutpreview.ControlPlaneMachineSetKind.Kind, inFile); err != nil {
		return nil, err
	}
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return rolloutpreview.PreviewControlPlane(ctx, c, q)
}

// previewPlane previews a RunlevelControlPlane: that of the cluster, or of the text of a file.
func (f *machinesPlanFlags) previewPlane(ctx context.Context, name string,
	text []byte) (*rolloutpreview.ControlPlanePreview, error) {
	q, inFile := rolloutpreview.RunlevelControlPlaneQuery{Name: name}, ""
	var err error
	if q.Extension, err = f.extensionQuery(); err != nil {
		return nil, err
	}
	if f.file != "" {
		if q.Wanted, err = rolloutpreview.ReadRunlevelControlPlane(f.file, text, name); err != nil {
			return nil, core.Misuse(err)
		}
		inFile = q.Wanted.Namespace()
	}
	if q.Namespace, err = f.namespaceOf(rolloutpreview.RunlevelControlPlaneKind.Kind, inFile); err != nil {
		return nil, err
	}
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return rolloutpreview.PreviewRunlevelControlPlane(ctx, c, q)
}
