package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

const values = `{"filter":{"profile":"edge"}}`

// newStore returns the store of a release in a namespace of its own.
func newStore(t *testing.T) files.Store {
	t.Helper()
	return files.Store{Cluster: test.Connect(t), Namespace: test.Namespace(t), Release: "web"}
}

// pack packs all files of a folder.
func pack(t *testing.T, folder fstest.MapFS) *files.Packed {
	t.Helper()
	var names []string
	for name := range folder {
		names = append(names, name)
	}
	packed, err := files.Pack(folder, names, []byte(values))
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func write(t *testing.T, s files.Store, packed *files.Packed) []types.UID {
	t.Helper()
	pieces, err := s.Write(t.Context(), packed, "1.0.0", 1)
	if err != nil {
		t.Fatal(err)
	}
	return pieces
}

func secrets(t *testing.T, s files.Store) []corev1.Secret {
	t.Helper()
	found, err := test.Client(t).CoreV1().Secrets(s.Namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: files.Label})
	if err != nil {
		t.Fatal(err)
	}
	return found.Items
}

func remove(t *testing.T, s files.Store, name string) {
	t.Helper()
	if err := test.Client(t).CoreV1().Secrets(s.Namespace).Delete(t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func shop() fstest.MapFS {
	return fstest.MapFS{
		"release-manifests/release-metadata":       {Data: []byte("{}")},
		"release-manifests/0000_10_web_01_ns.yaml": {Data: []byte("kind: Namespace\n")},
		"manifests/0000_20_web_02_key.yaml":        {Data: []byte("kind: Secret\n\x00\xff")},
	}
}

// noise returns a file that can't be compressed.
func noise(size int) fstest.MapFS {
	text := make([]byte, size)
	source := rand.New(rand.NewSource(1))
	for i := range text {
		text[i] = byte(source.Intn(256))
	}
	return fstest.MapFS{"a.yaml": {Data: text}}
}

func TestWrittenCopyIsRead(t *testing.T) {
	t.Parallel()
	s, packed := newStore(t), pack(t, shop())
	write(t, s, packed)
	read, err := s.Read(t.Context(), packed.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if string(read.Values) != values {
		t.Errorf("the values are %s", read.Values)
	}
	for name, file := range shop() {
		if text, err := fs.ReadFile(read.Files, name); err != nil || string(text) != string(file.Data) {
			t.Errorf("%s has %q (%v)", name, text, err)
		}
	}
}

func TestOnlyAnImage(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	packed, err := files.PackImage("registry.example/shop@sha256:abc", []byte(values))
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, packed)
	read, err := s.Read(t.Context(), packed.Digest)
	if err != nil || read.Files != nil || read.Image != "registry.example/shop@sha256:abc" ||
		string(read.Values) != values {
		t.Errorf("got files %+v (%v)", read, err)
	}
}

// TestSameContentIsOneCopy checks that packing the same content again gives the same copy, and that other values or
// files give another copy.
func TestSameContentIsOneCopy(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first, again := write(t, s, pack(t, shop())), write(t, s, pack(t, shop()))
	if !slices.Equal(first, again) || len(secrets(t, s)) != 1 {
		t.Errorf("the pieces are %v, then %v, in %d Secrets", first, again, len(secrets(t, s)))
	}
	changed := shop()
	changed["manifests/0000_20_web_02_key.yaml"].Data = []byte("kind: Secret\n")
	write(t, s, pack(t, changed))
	listed, err := s.List(t.Context())
	if err != nil || len(listed) != 2 || !listed[0].IsComplete() || listed[0].Version != "1.0.0" ||
		listed[0].Revision != 1 {
		t.Fatalf("the copies are %+v (%v), want 2", listed, err)
	}
	if err := errors.Join(s.Remove(t.Context(), listed[0]), s.Remove(t.Context(), listed[0])); err != nil {
		t.Fatal(err)
	}
	if remaining := secrets(t, s); len(remaining) != 1 {
		t.Errorf("%d Secrets are left, want 1", len(remaining))
	}
}

// TestSizeOfALargeRelease is that of 16 MB of manifests, of which no two are the same.
func TestSizeOfALargeRelease(t *testing.T) {
	t.Parallel()
	folder, source, size := fstest.MapFS{}, rand.New(rand.NewSource(1)), 0
	for i := 0; size < 16<<20; i++ {
		text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings-%d\n  namespace: shop\n  "+
			"labels: {app: web-%d}\ndata:\n", i, source.Intn(1000))
		for line := range 100 {
			text += fmt.Sprintf("  key-%d: |\n    value of the setting number %d is %x, and its neighbour's is %d\n",
				line, line, source.Uint32(), source.Intn(100))
		}
		folder[fmt.Sprintf("0000_%02d_web_%d.yaml", i%100, i)] = &fstest.MapFile{Data: []byte(text)}
		size += len(text)
	}
	s, packed := newStore(t), pack(t, folder)
	write(t, s, packed)
	all := secrets(t, s)
	if len(all) > 3 {
		t.Errorf("%d bytes take %d Secrets", size, len(all))
	}
	if read, err := s.Read(t.Context(), packed.Digest); err != nil {
		t.Error(err)
	} else if entries, err := fs.ReadDir(read.Files, "."); err != nil || len(entries) != len(folder) {
		t.Errorf("got %d files, want %d (%v)", len(entries), len(folder), err)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, err := s.Write(t.Context(), pack(t, noise(17<<20)), "1.0.0", 1)
	if err == nil || err.Error() != "the files need 18 Secrets of a MiB each, and 16 is the limit" ||
		len(secrets(t, s)) > 0 {
		t.Errorf("the error is %v, and there are %d Secrets", err, len(secrets(t, s)))
	}
}

// TestPiecesThatAreLostOrDamaged are named, and written again.
func TestPiecesThatAreLostOrDamaged(t *testing.T) {
	t.Parallel()
	s, packed := newStore(t), pack(t, noise(2500<<10))
	before := write(t, s, packed)
	all := secrets(t, s)
	if len(all) != 3 {
		t.Fatalf("there are %d pieces", len(all))
	}
	damage := func(change func(*corev1.Secret)) {
		damaged, err := test.Client(t).CoreV1().Secrets(s.Namespace).Get(t.Context(), all[1].Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(damaged)
		if _, err := test.Client(t).CoreV1().Secrets(s.Namespace).Update(t.Context(), damaged,
			metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
			t.Fatalf("a piece can be changed: %v", err)
		}
		remove(t, s, damaged.Name)
		damaged.ObjectMeta = metav1.ObjectMeta{
			Name:        damaged.Name,
			Labels:      damaged.Labels,
			Annotations: damaged.Annotations,
		}
		if _, err := test.Client(t).CoreV1().Secrets(s.Namespace).Create(t.Context(), damaged,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, wrong := range map[string]struct {
		do    func()
		what  string
		isNew bool // the copy seems to be complete, and a piece is another one
	}{
		"missing": {func() { remove(t, s, all[1].Name) }, "missing", false},
		"cut off": {func() {
			damage(func(secret *corev1.Secret) { secret.Data["files"] = secret.Data["files"][1:] })
		}, "damaged", true},
	} {
		wrong.do()
		want := fmt.Sprintf("Secret %s/%s is %s: apply the version again from its source, which writes its copy",
			s.Namespace, all[1].Name, wrong.what)
		if _, err := s.Read(t.Context(), packed.Digest); err == nil || err.Error() != want {
			t.Errorf("%s: the error is\n%v, want\n%s", name, err, want)
		}
		listed, err := s.List(t.Context())
		if err != nil || len(listed) != 1 || listed[0].IsComplete() != wrong.isNew ||
			slices.Equal(listed[0].Pieces, before) {
			t.Errorf("%s: the copies are %+v (%v), and the pieces were %v", name, listed, err, before)
		}
		write(t, s, packed)
		if _, err := s.Read(t.Context(), packed.Digest); err != nil {
			t.Errorf("%s: written again: %v", name, err)
		}
	}
}

// TestInterruptedWriteContinues is completed by the next one.
func TestInterruptedWriteContinues(t *testing.T) {
	t.Parallel()
	s, packed := newStore(t), pack(t, noise(2500<<10))
	var writes atomic.Int32
	killed := s
	killed.Cluster = sandboxtest.Connect(t,
		sandboxtest.Before(test.Sandbox(t).Config, func(request *http.Request) error {
			if request.Method == http.MethodPost && writes.Add(1) > 1 {
				return errors.New("killed")
			}
			return nil
		}))
	if _, err := killed.Write(t.Context(), packed, "1.0.0", 1); err == nil ||
		!strings.Contains(err.Error(), "killed") || len(secrets(t, s)) != 1 {
		t.Fatalf("the error is %v, and there are %d pieces", err, len(secrets(t, s)))
	}
	if listed, err := s.List(t.Context()); err != nil || len(listed) != 1 || listed[0].IsComplete() {
		t.Errorf("the copies are %+v (%v)", listed, err)
	}
	write(t, s, packed)
	if _, err := s.Read(t.Context(), packed.Digest); err != nil {
		t.Error(err)
	}
}

func TestWithoutRights(t *testing.T) {
	t.Parallel()
	s, packed := newStore(t), pack(t, shop())
	write(t, s, packed)
	s.Cluster = sandboxtest.Connect(t,
		test.Account(t, s.Namespace, "reader",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}))
	_, listErr := s.List(t.Context())
	_, readErr := s.Read(t.Context(), packed.Digest)
	_, writeErr := s.Write(t.Context(), packed, "1.0.0", 1)
	for verb, err := range map[string]error{"list": listErr, "get": readErr, "create": writeErr} {
		if want := fmt.Sprintf("this user may not %s secrets in namespace %s", verb, s.Namespace); err == nil ||
			err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
