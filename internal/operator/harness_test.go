package operator_test

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/operator"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// patience is far longer than any expected event takes.
const patience = 5 * time.Minute

// A stage is a control plane with an operator, and a registry of releases.
type stage struct {
	t        testing.TB
	sandbox  *sandbox.Sandbox
	images   *imageregistry.Registry
	registry string // its address
	client   client.Client
	options  operator.Options
	end      func() error // ends the operator
}

// newStage returns a stage without an operator.
func newStage(t testing.TB) *stage {
	t.Helper()
	s := sandboxtest.Start(t,
		sandbox.Options{AuditPolicy: sandboxtest.AuditAccount("runlevel-system", "runlevel-operator")})
	releases := imageregistry.Start()
	t.Cleanup(releases.Close)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{configv1.Install, clientgoscheme.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	st := &stage{t: t, sandbox: s, images: releases, registry: releases.Host}
	var err error
	if st.client, err = client.New(s.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return st
}

// begin returns a stage whose operator was started with a release, in this process.
func begin(t testing.TB, version, files string) *stage {
	t.Helper()
	s := newStage(t)
	s.beginWith(version, files)
	return s
}

// beginWith starts an operator with a release, in this process.
func (s *stage) beginWith(version, files string) {
	s.t.Helper()
	s.prepare(version, files)
	s.start()
}

// prepare sets the options of an operator in this process that a test starts with a release.
func (s *stage) prepare(version, files string) {
	s.t.Helper()
	o := &s.options
	o.Payload, o.Name, o.CacheDir = s.push(version, files), "test", filepath.Join(s.t.TempDir(), "cache")
	o.Source, o.LockDuration = source.Options{Insecure: true}, time.Minute // a busy machine can renew it
}

// start starts the operator.
func (s *stage) start() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx, s.sandbox.Config, s.options) }()
	stopped := false
	s.end = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	s.t.Cleanup(func() {
		if err := s.end(); err != nil {
			s.t.Error("the operator:", err)
		}
	})
}

// restart ends the operator, and starts another one.
func (s *stage) restart() {
	s.t.Helper()
	if err := s.end(); err != nil {
		s.t.Error("the operator:", err)
	}
	s.start()
}

// push puts a release of files in txtar into the registry, and returns its image by digest.
func (s *stage) push(version, files string) string {
	s.t.Helper()
	return s.pushRelease(version, s.release(version, files))
}

// pushRelease puts a release into the registry, and returns its image by digest.
func (s *stage) pushRelease(version string, files fs.FS) string {
	s.t.Helper()
	image, err := s.images.Push(s.t.Context(), "team/release:"+version, files)
	s.must(err)
	return image.String()
}

// release returns a release of files in txtar.
func (s *stage) release(version, files string) fs.FS {
	s.t.Helper()
	all := txtar.Parse([]byte(strings.ReplaceAll(files, "VERSION", version)))
	for i, file := range all.Files {
		if !strings.Contains(file.Name, "/") && file.Name != payload.SettingsFile {
			all.Files[i].Name = "release-manifests/" + file.Name
		}
	}
	all.Files = append(all.Files,
		txtar.File{
			Name: "release-manifests/release-metadata",
			Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "` + version + `"}`),
		},
		txtar.File{
			Name: "release-manifests/image-references",
			Data: []byte(`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "` +
				version + `"}}`),
		},
	)
	release, err := txtar.FS(all)
	s.must(err)
	return release
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// version returns the ClusterVersion; an empty one if there is none.
func (s *stage) version() *configv1.ClusterVersion {
	var v configv1.ClusterVersion
	_ = s.client.Get(s.t.Context(), client.ObjectKey{Name: "version"}, &v)
	return &v
}

// until waits until the ClusterVersion is as wanted.
func (s *stage) until(what string, isSo func(*configv1.ClusterVersion) bool) *configv1.ClusterVersion {
	s.t.Helper()
	var last *configv1.ClusterVersion
	err := wait.PollUntilContextTimeout(s.t.Context(), 100*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			last = s.version()
			return isSo(last), nil
		})
	if err != nil {
		s.t.Fatalf("%s\nnever: %s", s.text(), what)
	}
	return last
}

// text returns the ClusterVersion for people.
func (s *stage) text() string {
	v := s.version()
	v.ManagedFields = nil
	text, _ := yaml.Marshal(v)
	return string(text)
}

// update asks for a release by its image.
func (s *stage) update(image string, change ...func(*configv1.Update)) {
	s.t.Helper()
	update := &configv1.Update{Image: image}
	for _, fn := range change {
		fn(update)
	}
	s.ask(update)
}

// ask sets spec.desiredUpdate; nil removes it.
func (s *stage) ask(update *configv1.Update) {
	s.t.Helper()
	v := s.version()
	patch := client.MergeFrom(v.DeepCopy())
	v.Spec.DesiredUpdate = update
	s.must(s.client.Patch(s.t.Context(), v, patch))
}

// report writes the status of a ClusterOperator, as its operator would.
func (s *stage) report(name, version string, change ...func(*configv1.ClusterOperatorStatus)) {
	s.t.Helper()
	var operator configv1.ClusterOperator
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			// nor may its kind be served yet
			return s.client.Get(ctx, client.ObjectKey{Name: name}, &operator) == nil, nil
		})
	if err != nil {
		s.t.Fatalf("%s\nthere never is a ClusterOperator %s", s.text(), name)
	}
	patch := client.MergeFrom(operator.DeepCopy())
	operator.Status.Versions = []configv1.OperandVersion{{Name: "operator", Version: version}}
	operator.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		condition(configv1.OperatorAvailable, configv1.ConditionTrue),
		condition(configv1.OperatorDegraded, configv1.ConditionFalse),
		condition(configv1.OperatorProgressing, configv1.ConditionFalse),
	}
	for _, fn := range change {
		fn(&operator.Status)
	}
	s.must(s.client.Status().Patch(s.t.Context(), &operator, patch))
}

// await waits until the condition holds.
func (s *stage) await(what string, isSo func() bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 100*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			return isSo(), nil
		})
	if err != nil {
		s.t.Fatalf("%s\nnever: %s", s.text(), what)
	}
}

// untilSettings waits until the ConfigMap has a version.
func (s *stage) untilSettings(version string) {
	s.t.Helper()
	s.await("the settings are of "+version, func() bool {
		found := s.settings()
		return found != nil && found.Data["version"] == version
	})
}

// settings returns the ConfigMap of the releases, or nil.
func (s *stage) settings() *corev1.ConfigMap {
	var found corev1.ConfigMap
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "shop", Name: "settings"}, &found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.must(err)
	return &found
}

// editSettings changes the ConfigMap of the releases, even if the operator writes it at the same time.
func (s *stage) editSettings(version string) error {
	s.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}}
	patch := fmt.Appendf(nil, `{"data": {"version": %q}}`, version)
	return s.client.Patch(s.t.Context(), object, client.RawPatch("application/merge-patch+json", patch))
}
