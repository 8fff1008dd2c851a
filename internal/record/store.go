package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// The reasons of this package's failures.
const (
	ReasonUnreadable = "ReleaseRecordUnreadable" // this program can't read the record
	ReasonChanged    = "ReleaseRecordChanged"    // another program has written it
	ReasonTooBig     = "ReleaseRecordTooBig"     // the record does not fit into a ConfigMap
	ReasonDenied     = "ReleaseRecordDenied"     // rights are missing
	ReasonFailed     = "ReleaseRecordFailed"     // the server can't be reached, or refuses the request
)

const (
	key             = "record.json"
	fingerprintsKey = "fingerprints"
	fieldManager    = "runlevel"
)

// The resources of the requests, as in roles.
const (
	configMaps = "configmaps"
	leases     = "leases.coordination.k8s.io"
)

// ErrChanged is wrapped by the error of Save if another program has written the record.
var ErrChanged = &reason.Error{
	Reason:  ReasonChanged,
	Message: "another program has written it since it was read: load it again",
}

// A Store is the store of the record of one release. It is for one goroutine at a time.
type Store struct {
	client    kubernetes.Interface
	namespace string
	release   string

	loaded *corev1.ConfigMap // ConfigMap as last read or written; nil if there was none
	sent   []string          // the records sent since, without a response
	copied string            // the copy in the Lease, as last written
	loss   string            // why the record was lost; "" if it was never lost
}

// NewStore returns the store of a release's record. It sends no requests.
func NewStore(client kubernetes.Interface, namespace, release string) *Store {
	return &Store{client: client, namespace: namespace, release: release}
}

// Load reads the record. If it or its namespace does not exist, the record is empty, and
// found is false.
func (s *Store) Load(ctx context.Context) (*Record, bool, error) {
	if err := lock.CheckRelease(s.release); err != nil {
		return nil, false, err
	}
	s.loaded, s.sent, s.copied = nil, nil, ""
	found, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, lock.Name(s.release), metav1.GetOptions{})
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

// loadCopy reads the copy of a record whose ConfigMap does not exist.
func (s *Store) loadCopy(ctx context.Context) (*Record, bool, error) {
	r, err := s.restore(ctx)
	if err != nil || r == nil {
		return &Record{Release: s.release}, false, err
	}
	s.loss = fmt.Sprintf("most of the history: ConfigMap %s/%s, the record of the release, was deleted; the copy in "+
		"the Lease has only the parts that updates need", s.namespace, lock.Name(s.release))
	return r, true, nil
}

// UID returns the UID of the record's ConfigMap as it was last read or written; "" if there is none.
func (s *Store) UID() types.UID {
	if s.loaded == nil {
		return ""
	}
	return s.loaded.UID
}

// Loss returns what is no longer known because the record was deleted; "" if it was not deleted.
func (s *Store) Loss() string { return s.loss }

// Save writes the record and its copy, unless they are unchanged. The namespace has to exist. If another
// program has written the record since it was loaded, Save returns an ErrChanged; if it was deleted, it is
// created again.
func (s *Store) Save(ctx context.Context, r *Record) error {
	if err := lock.CheckRelease(s.release); err != nil {
		return err
	}
	if r.Release != s.release {
		return fmt.Errorf("the record belongs to release %q, not to %q", r.Release, s.release)
	}
	wanted, err := s.wanted(r)
	if err != nil || s.isLoaded(wanted) {
		return err
	}
	var beside errgroup.Group
	beside.Go(func() error { return s.writeCopy(ctx, r) })
	err = s.saveAs(ctx, r, wanted)
	if copyErr := beside.Wait(); err == nil {
		err = copyErr
	}
	return err
}

// saveAs writes the ConfigMap.
func (s *Store) saveAs(ctx context.Context, r *Record, wanted *corev1.ConfigMap) error {
	err := s.write(ctx, wanted)
	switch {
	case apierrors.IsNotFound(err) && s.loaded != nil:
		s.loss = fmt.Sprintf("nothing: ConfigMap %s/%s, the record of the release, was deleted meanwhile, and is "+
			"written again", s.namespace, lock.Name(s.release))
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
		return fmt.Errorf("record of release %q, ConfigMap %s/%s: %w", s.release, s.namespace, lock.Name(s.release),
			ErrChanged)
	}
	return err
}

// wanted returns the desired ConfigMap, with the fields that other clients have set.
func (s *Store) wanted(r *Record) (*corev1.ConfigMap, error) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: lock.Name(s.release)}}
	if s.loaded != nil {
		config = s.loaded.DeepCopy()
	}
	text, fingerprints, err := encode(r, config)
	if err != nil {
		return nil, err
	}
	metav1.SetMetaDataLabel(&config.ObjectMeta, lock.Label, s.release)
	if config.Data == nil {
		config.Data = map[string]string{}
	}
	config.Data[key] = text
	delete(config.BinaryData, fingerprintsKey)
	if len(fingerprints) > 0 {
		if config.BinaryData == nil {
			config.BinaryData = map[string][]byte{}
		}
		config.BinaryData[fingerprintsKey] = fingerprints
	}
	return config, nil
}

// isLoaded reports whether the cluster has the same record already.
func (s *Store) isLoaded(wanted *corev1.ConfigMap) bool {
	return s.loaded != nil && len(s.sent) == 0 && s.loaded.Data[key] == wanted.Data[key] &&
		s.loaded.Labels[lock.Label] == s.release &&
		bytes.Equal(s.loaded.BinaryData[fingerprintsKey], wanted.BinaryData[fingerprintsKey])
}

// write creates or updates the ConfigMap.
func (s *Store) write(ctx context.Context, wanted *corev1.ConfigMap) error {
	var written *corev1.ConfigMap
	var err error
	verb, configs := "update", s.client.CoreV1().ConfigMaps(s.namespace)
	if s.loaded != nil {
		written, err = configs.Update(ctx, wanted, metav1.UpdateOptions{FieldManager: fieldManager})
	} else {
		verb = "create"
		written, err = configs.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
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

// Delete deletes the ConfigMap as it was last read or written. The copy is in the Lease, which the holder of the lock
// deletes.
func (s *Store) Delete(ctx context.Context) error {
	if s.loaded == nil {
		return nil
	}
	only := metav1.NewUIDPreconditions(string(s.loaded.UID))
	err := s.client.CoreV1().ConfigMaps(s.namespace).Delete(ctx, s.loaded.Name,
		metav1.DeleteOptions{Preconditions: only})
	if err != nil && !apierrors.IsNotFound(err) {
		return s.failure("delete", configMaps, err)
	}
	s.loaded = nil
	return nil
}

// isOwn reports whether a conflicting ConfigMap was written by this Store: the response to
// an earlier write may have been lost.
func (s *Store) isOwn(ctx context.Context) bool {
	found, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, lock.Name(s.release), metav1.GetOptions{})
	if err != nil || !slices.Contains(s.sent, found.Data[key]) {
		return false
	}
	s.loaded, s.sent = found, nil
	return true
}

// isConflict reports whether the ConfigMap differs from the one that was read.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// failure returns the error of a request, with the missing right, if any.
func (s *Store) failure(verb, resource string, err error) error {
	var known *reason.Error
	if errors.As(err, &known) {
		return err
	}
	message := fmt.Sprintf("release %q: %s %s %s in namespace %q", s.release, verb, resource, lock.Name(s.release),
		s.namespace)
	cause := ReasonFailed
	if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		cause = ReasonDenied
	}
	return &reason.Error{Reason: cause, Message: message, Err: printable.Error(err)}
}

// List reads the records of all releases, in the order of their names, or the copies of lost records.
// It returns the readable records, and the joined errors of those that can't be read.
func List(ctx context.Context, client kubernetes.Interface, namespace string) ([]*Record, error) {
	found, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: lock.Label})
	if err != nil {
		return nil, fmt.Errorf("list %s in namespace %q: %w", configMaps, namespace, printable.Error(err))
	}
	records := []*Record{} // a list in JSON, even if it is empty
	var broken []error
	for i := range found.Items {
		r, err := decode(&found.Items[i], lock.ReleaseOf(found.Items[i].Name))
		if err != nil {
			broken = append(broken, err)
			continue
		}
		records = append(records, r)
	}
	exists := func(release string) bool {
		return slices.ContainsFunc(found.Items, func(config corev1.ConfigMap) bool {
			return config.Name == lock.Name(release)
		})
	}
	lost, unreadable := copies(ctx, client, namespace, exists)
	records = append(records, lost...)
	slices.SortFunc(records, func(a, b *Record) int { return strings.Compare(a.Release, b.Release) })
	return records, errors.Join(append(broken, unreadable...)...)
}

// Namespaces returns the namespaces that have a record of a release, in order, or of any release if none is named.
func Namespaces(ctx context.Context, client kubernetes.Interface, release string) ([]string, error) {
	selector := lock.Label
	if release != "" {
		selector += "=" + release
	}
	records, err := client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list %s of all namespaces: %w", configMaps, printable.Error(err))
	}
	var found []string
	for _, configMap := range records.Items {
		if configMap.Name == lock.Name(lock.ReleaseOf(configMap.Name)) {
			found = append(found, configMap.Namespace)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
