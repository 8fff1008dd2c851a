package record

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/reason"
)

// The reasons of this package's failures.
const (
	ReasonUnreadable = "ReleaseRecordUnreadable" // the record is not what this program can read
	ReasonChanged    = "ReleaseRecordChanged"    // another program has written it
	ReasonTooBig     = "ReleaseRecordTooBig"     // it does not fit into a ConfigMap
	ReasonHeld       = "ReleaseLocked"           // somebody else applies the release
	ReasonLost       = "ReleaseLockLost"         // we may not apply it any more
	ReasonDenied     = "ReleaseRecordDenied"     // rights are missing
	ReasonFailed     = "ReleaseRecordFailed"     // the server can't be asked, or says no
)

// Label is on every ConfigMap and Lease of this package. Its value is the release's name.
// It is not the label of what a release consists of, so that nobody takes a record for an
// object of the release, and removes it with those.
const Label = "runlevel.dev/record"

const (
	prefix = "runlevel-release-" // of the names of ConfigMaps and Leases
	key    = "record.json"

	fingerprintsKey = "fingerprints"

	fieldManager = "runlevel"
)

// What we ask the server for, as it calls them in roles.
const (
	configMaps = "configmaps"
	namespaces = "namespaces"
	leases     = "leases.coordination.k8s.io"
)

// ErrChanged is what Save returns when another program has written the record.
var ErrChanged = &reason.Error{Reason: ReasonChanged, Message: "another program has written it since it was read: load it again"}

// A Store is where the record of one release is. It is for one goroutine at a time, but
// for Locked, which may run beside Load and Save.
type Store struct {
	// Now is the time, best by the server's clock. Nil means this machine's.
	Now func() time.Time

	client    kubernetes.Interface
	namespace string
	release   string

	isThere atomic.Bool       // the namespace, as far as we have seen
	loaded  *corev1.ConfigMap // as it was read or written last; nil if there was none
	sent    []string          // what was to be written since, and nobody knows whether it was
	copied  string            // the copy in the Lease, as it was written last
	loss    string            // of the record, in words; "" if it was never lost
}

// NewStore is the place of a release's record. It asks the cluster for nothing.
func NewStore(client kubernetes.Interface, namespace, release string) *Store {
	return &Store{client: client, namespace: namespace, release: release}
}

// CheckName says what is wrong with the name of a release, if anything is.
func CheckName(release string) error {
	if len(validation.IsDNS1123Label(release)) > 0 {
		return fmt.Errorf("release name %q: use up to 63 lower-case letters, digits and dashes, with a letter or digit at both ends", release)
	}
	return nil
}

func (s *Store) name() string { return prefix + s.release }

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// Load reads the record. Where there is none, not even its namespace, it is empty, and
// not found.
func (s *Store) Load(ctx context.Context) (*Record, bool, error) {
	if err := CheckName(s.release); err != nil {
		return nil, false, err
	}
	s.loaded, s.sent, s.copied = nil, nil, ""
	found, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, s.name(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return s.loadCopy(ctx)
	case err != nil:
		return nil, false, s.failure("get", configMaps, err)
	}
	r, err := decode(found, s.release)
	if err != nil {
		return nil, true, err
	}
	s.loaded = found
	return r, true, nil
}

// loadCopy reads the copy of a record whose ConfigMap is not there.
func (s *Store) loadCopy(ctx context.Context) (*Record, bool, error) {
	r, err := s.restore(ctx)
	if err != nil || r == nil {
		return &Record{Release: s.release}, false, err
	}
	s.loss = fmt.Sprintf("most of the history: ConfigMap %s/%s, the record of the release, was deleted; what updates need of it is from the copy in the Lease", s.namespace, s.name())
	return r, true, nil
}

// Loss says what is not known any more because the record was deleted; "" if it was not.
func (s *Store) Loss() string { return s.loss }

// Save writes the record and its copy, unless the cluster has them as they are. If another
// program has written it since it was loaded, that is an ErrChanged; if it was deleted, it is
// written anew.
func (s *Store) Save(ctx context.Context, r *Record) error {
	if err := CheckName(s.release); err != nil {
		return err
	}
	if r.Release != s.release {
		return fmt.Errorf("the record of release %q is no record of release %q", r.Release, s.release)
	}
	wanted, err := s.wanted(r)
	if err != nil || s.isLoaded(wanted) {
		return err
	}
	var beside errgroup.Group
	beside.Go(func() error { return s.writeCopy(ctx, r) })
	err = s.saveAs(ctx, r, wanted)
	return cmp.Or(err, beside.Wait())
}

// saveAs writes the ConfigMap.
func (s *Store) saveAs(ctx context.Context, r *Record, wanted *corev1.ConfigMap) error {
	err := s.write(ctx, wanted)
	switch {
	case apierrors.IsNotFound(err) && s.loaded != nil:
		s.loss = fmt.Sprintf("nothing: ConfigMap %s/%s, the record of the release, was deleted meanwhile, and is written anew", s.namespace, s.name())
		s.loaded = nil
		if wanted, err = s.wanted(r); err == nil {
			err = s.write(ctx, wanted)
		}
	case isConflict(err) && s.isOwn(ctx):
		if wanted, err = s.wanted(r); err == nil && !s.isLoaded(wanted) {
			err = s.write(ctx, wanted)
		}
	}
	if isConflict(err) {
		return fmt.Errorf("record of release %q, ConfigMap %s/%s: %w", s.release, s.namespace, s.name(), ErrChanged)
	}
	return err
}

// wanted is the ConfigMap as it is to be, with whatever others have put into it.
func (s *Store) wanted(r *Record) (*corev1.ConfigMap, error) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name()}}
	if s.loaded != nil {
		config = s.loaded.DeepCopy()
	}
	text, err := encode(r, config)
	if lean := *r; err == nil && r.Run != nil && len(text)+len(r.Fingerprints) > room(config) {
		lean.Run = nil // which costs nobody a request
		text, err = encode(&lean, config)
	}
	if err != nil {
		return nil, err
	}
	metav1.SetMetaDataLabel(&config.ObjectMeta, Label, s.release)
	if config.Data == nil {
		config.Data = map[string]string{}
	}
	config.Data[key] = text
	delete(config.BinaryData, fingerprintsKey)
	if len(r.Fingerprints) > 0 && len(text)+len(r.Fingerprints) <= room(config) {
		if config.BinaryData == nil {
			config.BinaryData = map[string][]byte{}
		}
		config.BinaryData[fingerprintsKey] = r.Fingerprints
	}
	return config, nil
}

// isLoaded says whether the cluster is known to have it already.
func (s *Store) isLoaded(wanted *corev1.ConfigMap) bool {
	return s.loaded != nil && len(s.sent) == 0 && s.loaded.Data[key] == wanted.Data[key] && s.loaded.Labels[Label] == s.release &&
		bytes.Equal(s.loaded.BinaryData[fingerprintsKey], wanted.BinaryData[fingerprintsKey])
}

// write creates or updates the ConfigMap, and makes its namespace if there is none.
func (s *Store) write(ctx context.Context, wanted *corev1.ConfigMap) error {
	var written *corev1.ConfigMap
	var err error
	verb, configs := "update", s.client.CoreV1().ConfigMaps(s.namespace)
	if s.loaded != nil {
		written, err = configs.Update(ctx, wanted, metav1.UpdateOptions{FieldManager: fieldManager})
	} else {
		verb = "create"
		err = s.inNamespace(ctx, func() (err error) {
			written, err = configs.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
			return err
		})
	}
	if err != nil {
		if !slices.Contains(s.sent, wanted.Data[key]) {
			s.sent = append(s.sent, wanted.Data[key])
		}
		return s.failure(verb, configMaps, err)
	}
	s.loaded, s.sent = written, nil
	return nil
}

// inNamespace creates something, and its namespace first if there is none. That is asked for
// before, by those who may: the server keeps what comes into a namespace that is not there, or
// has only just come, for 50 ms.
func (s *Store) inNamespace(ctx context.Context, create func() error) error {
	if s.hasNamespace(ctx) {
		if err := create(); !apierrors.IsNotFound(err) {
			return err
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	made, err := s.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		s.settle(ctx, made)
	case !apierrors.IsAlreadyExists(err):
		return s.failure("create", namespaces, err)
	}
	return create()
}

// hasNamespace says whether the namespace is there, or may be for all we know.
func (s *Store) hasNamespace(ctx context.Context) bool {
	if s.isThere.Load() {
		return true
	}
	_, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	s.isThere.Store(err == nil)
	return !apierrors.IsNotFound(err)
}

// settle waits until the server's cache has the namespace, but not for long.
func (s *Store) settle(ctx context.Context, made *corev1.Namespace) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := s.client.CoreV1().Namespaces().Get(ctx, made.Name, metav1.GetOptions{ResourceVersion: made.ResourceVersion})
	s.isThere.Store(err == nil)
}

// isOwn says whether what is in our way is what we wrote ourselves: an update may have
// been done, and its answer have been lost.
func (s *Store) isOwn(ctx context.Context) bool {
	found, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, s.name(), metav1.GetOptions{})
	if err != nil || !slices.Contains(s.sent, found.Data[key]) {
		return false
	}
	s.loaded, s.sent = found, nil
	return true
}

// isConflict says whether the ConfigMap is not the one that was read.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// failure says what could not be done, and which right is missing if it is that.
func (s *Store) failure(verb, resource string, err error) error {
	var known *reason.Error
	if errors.As(err, &known) {
		return err
	}
	says := fmt.Sprintf("release %q: %s %s %s in namespace %q", s.release, verb, resource, s.name(), s.namespace)
	if resource == namespaces {
		says = fmt.Sprintf("release %q: %s %s %s", s.release, verb, resource, s.namespace)
	}
	why := ReasonFailed
	if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		why = ReasonDenied
	}
	return &reason.Error{Reason: why, Message: says, Err: shown(err)}
}

// A shownError is an error of the server, in one line.
type shownError struct{ err error }

func (e shownError) Error() string { return printable.Line(strings.TrimSpace(e.err.Error())) }
func (e shownError) Unwrap() error { return e.err }

func shown(err error) error { return shownError{err} }

// List reads the records of all releases, in the order of their names, or the copies of those that
// are lost. Those that can't be read are errors, all of them joined, beside those that can.
func List(ctx context.Context, client kubernetes.Interface, namespace string) ([]*Record, error) {
	found, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: Label})
	if err != nil {
		return nil, fmt.Errorf("list %s in namespace %q: %w", configMaps, namespace, shown(err))
	}
	records := []*Record{} // which is a list for those who read JSON, too
	var broken []error
	for i := range found.Items {
		r, err := decode(&found.Items[i], strings.TrimPrefix(found.Items[i].Name, prefix))
		if err != nil {
			broken = append(broken, err)
			continue
		}
		records = append(records, r)
	}
	isThere := func(release string) bool {
		return slices.ContainsFunc(found.Items, func(config corev1.ConfigMap) bool { return config.Name == prefix+release })
	}
	lost, unreadable := copies(ctx, client, namespace, isThere)
	records = append(records, lost...)
	slices.SortFunc(records, func(a, b *Record) int { return strings.Compare(a.Release, b.Release) })
	return records, errors.Join(append(broken, unreadable...)...)
}
