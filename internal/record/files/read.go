package files

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

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

// remedy is what to do about a copy that can't be read.
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
