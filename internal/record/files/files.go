// Package files keeps copies of the files of applied releases on the cluster, so that a version can be read without its
// source: to be applied again, compared, or printed.
//
// A copy is one compressed archive, in as many Secrets as it needs, since manifests have Secrets. Its name is the
// digest of its content: versions with the same content share a copy. The package does not know which copies are
// needed: the record has their digests, and the process that holds the lock of the release writes and removes them. It
// does not read manifests either.
//
// Pack and Store.Write write a copy, and Store.Read reads it. Start with Pack.
package files

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Label is on each Secret of a copy. Its value is the name of the release.
const Label = "runlevel.dev/files"

// The annotations of each Secret of a copy.
const (
	digestAnnotation   = "runlevel.dev/digest"
	piecesAnnotation   = "runlevel.dev/pieces"   // how many Secrets the copy has
	sumAnnotation      = "runlevel.dev/sum"      // checksum of the data of this Secret
	versionAnnotation  = "runlevel.dev/version"  // version that was applied when the copy was written
	revisionAnnotation = "runlevel.dev/revision" // revision of that update
)

const (
	secretType   = "runlevel.dev/files"
	secretKey    = "files"
	fieldManager = "runlevel"

	maxPiece  = 1000 << 10 // a Secret has room for 1 MiB of data
	maxPieces = 16         // pieces of a copy: a database of a cluster has 2 GiB by default
)

// A Store manages the copies of one release.
type Store struct {
	Cluster   *cluster.Cluster
	Namespace string // namespace of the record
	Release   string
}

// A Copy is a copy on the cluster, of which some pieces may be lost.
type Copy struct {
	Digest   string
	Version  string // version that was applied when the copy was written
	Revision int
	Pieces   []types.UID // UIDs of the Secrets; empty where one is missing
	created  time.Time
}

// IsComplete reports whether all pieces of a copy exist.
func (c Copy) IsComplete() bool { return len(c.Pieces) > 0 && !slices.Contains(c.Pieces, "") }

// name returns the name of the Secret of a piece.
func (s Store) name(digest string, piece int) string {
	const enough = 32 // number of digits, out of 64; the annotation and the record have them all
	digits := strings.TrimPrefix(digest, "sha256:")
	return fmt.Sprintf("%s-files-%s-%d", lock.Name(s.Release), digits[:min(enough, len(digits))], piece)
}

// Has reports whether the name of a Secret is that of a piece of a copy of the release.
func (s Store) Has(secret types.NamespacedName) bool {
	return secret.Namespace == s.Namespace && strings.HasPrefix(secret.Name, lock.Name(s.Release)+"-files-")
}

// List returns the copies, the newest first. It reads their metadata only.
func (s Store) List(ctx context.Context) ([]Copy, error) {
	secrets := s.Cluster.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(s.Namespace)
	listed, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + s.Release})
	if err != nil {
		return nil, s.failure("list", err)
	}
	found := map[string]*Copy{}
	for _, secret := range listed.Items {
		digest := secret.Annotations[digestAnnotation]
		count, _ := strconv.Atoi(secret.Annotations[piecesAnnotation])
		piece, err := strconv.Atoi(secret.Name[strings.LastIndex(secret.Name, "-")+1:])
		if err != nil || piece < 0 || piece >= count || count > maxPieces || secret.Name != s.name(digest, piece) ||
			secret.DeletionTimestamp != nil {
			continue // it is not one of ours
		}
		c := found[digest]
		if c == nil || len(c.Pieces) != count {
			c = &Copy{
				Digest:  digest,
				Version: secret.Annotations[versionAnnotation],
				Pieces:  make([]types.UID, count),
				created: secret.CreationTimestamp.Time,
			}
			c.Revision, _ = strconv.Atoi(secret.Annotations[revisionAnnotation])
			found[digest] = c
		}
		c.Pieces[piece] = secret.UID
	}
	var all []Copy
	for _, copied := range found {
		all = append(all, *copied)
	}
	slices.SortFunc(all, func(a, b Copy) int {
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(b.Revision, a.Revision),
			strings.Compare(a.Digest, b.Digest))
	})
	return all, nil
}

// Write writes a copy, as far as the cluster does not have it, and returns the UIDs of its pieces.
func (s Store) Write(ctx context.Context, packed *Packed, version string, revision int) ([]types.UID, error) {
	if len(packed.pieces) > maxPieces {
		return nil, fmt.Errorf("the files need %d Secrets of a MiB each, and %d is the limit", len(packed.pieces),
			maxPieces)
	}
	written := make([]types.UID, len(packed.pieces))
	var group errgroup.Group
	for i, content := range packed.pieces {
		group.Go(func() (err error) {
			written[i], err = s.writePiece(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: s.Namespace, Name: s.name(packed.Digest, i), Labels: map[string]string{Label: s.Release},
					Annotations: map[string]string{
						digestAnnotation: packed.Digest, piecesAnnotation: strconv.Itoa(len(packed.pieces)),
						sumAnnotation:     sumOf(content),
						versionAnnotation: version, revisionAnnotation: strconv.Itoa(revision),
					},
				},
				Type: secretType, Immutable: new(true), Data: map[string][]byte{secretKey: content},
			})
			return err
		})
	}
	return written, group.Wait()
}

// writePiece creates a Secret. A Secret of the same name may be from a killed apply, or from another client:
// then it is replaced, since nothing can change it.
func (s Store) writePiece(ctx context.Context, wanted *corev1.Secret) (types.UID, error) {
	secrets := s.Cluster.Client.CoreV1().Secrets(s.Namespace)
	create := func() (types.UID, error) {
		created, err := secrets.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil {
			return "", err
		}
		return created.UID, nil
	}
	uid, err := create()
	if !apierrors.IsAlreadyExists(err) {
		return uid, s.failure("create", err)
	}
	existing, err := secrets.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", s.failure("get", err)
	case isSame(existing, wanted):
		return existing.UID, nil
	}
	if err := s.remove(ctx, wanted.Name, existing.UID); err != nil {
		return "", err
	}
	uid, err = create()
	return uid, s.failure("create", err)
}

// isSame reports whether a Secret is the same piece as another one. The version that it was written for may be another
// one.
func isSame(existing, wanted *corev1.Secret) bool {
	for _, name := range []string{digestAnnotation, piecesAnnotation, sumAnnotation} {
		if existing.Annotations[name] != wanted.Annotations[name] {
			return false
		}
	}
	return bytes.Equal(existing.Data[secretKey], wanted.Data[secretKey]) &&
		existing.Labels[Label] == wanted.Labels[Label]
}

// sumOf returns the sum of the data of a piece.
func sumOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// Remove removes a copy.
func (s Store) Remove(ctx context.Context, stored Copy) error {
	var all []error
	for piece, uid := range stored.Pieces {
		if uid != "" {
			all = append(all, s.remove(ctx, s.name(stored.Digest, piece), uid))
		}
	}
	return errors.Join(all...)
}

// RemoveAll removes all copies.
func (s Store) RemoveAll(ctx context.Context) error {
	stored, err := s.List(ctx)
	if err != nil {
		return err
	}
	var all []error
	for _, copied := range stored {
		all = append(all, s.Remove(ctx, copied))
	}
	return errors.Join(all...)
}

func (s Store) remove(ctx context.Context, name string, uid types.UID) error {
	err := s.Cluster.Client.CoreV1().Secrets(s.Namespace).Delete(ctx, name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return s.failure("delete", err)
}

// failure returns the error of a request, with the missing right, if any.
func (s Store) failure(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("this user may not %s secrets in namespace %s", verb, s.Namespace)
	default:
		return fmt.Errorf("%s secrets in namespace %s: %w", verb, s.Namespace, printable.Error(err))
	}
}

// Read reads a copy. The error names pieces that are missing or damaged.
func (s Store) Read(ctx context.Context, digest string) (*Unpacked, error) {
	first, err := s.piece(ctx, digest, 0)
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(first.Annotations[piecesAnnotation])
	if err != nil || count < 1 || count > maxPieces {
		return nil, fmt.Errorf("%s is damaged: its annotation %s is %q: %s", s.id(digest, 0), piecesAnnotation,
			first.Annotations[piecesAnnotation], remedy)
	}
	pieces := make([][]byte, count)
	pieces[0] = first.Data[secretKey]
	var group errgroup.Group
	for i := 1; i < count; i++ {
		group.Go(func() error {
			found, err := s.piece(ctx, digest, i)
			if err == nil {
				pieces[i] = found.Data[secretKey]
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	unpacked, err := unpack(pieces, digest)
	if err != nil {
		return nil, fmt.Errorf("the copy that begins with %s is damaged: %w: %s", s.id(digest, 0), err, remedy)
	}
	return unpacked, nil
}

// remedy is the resolution for a copy that can't be read.
const remedy = "apply the version again from its source, which writes its copy"

// id returns the Secret of a piece.
func (s Store) id(digest string, piece int) kinds.ID {
	return kinds.NewID(kinds.Secret, s.Namespace, s.name(digest, piece))
}

// piece reads a Secret of a copy.
func (s Store) piece(ctx context.Context, digest string, piece int) (*corev1.Secret, error) {
	found, err := s.Cluster.Client.CoreV1().Secrets(s.Namespace).Get(ctx, s.name(digest, piece), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s is missing: %s", s.id(digest, piece), remedy)
	case err != nil:
		return nil, s.failure("get", err)
	case sumOf(found.Data[secretKey]) != found.Annotations[sumAnnotation]:
		return nil, fmt.Errorf("%s is damaged: %s", s.id(digest, piece), remedy)
	}
	return found, nil
}
