package files

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"
)

// Read reads a copy. The error names pieces that are missing or damaged.
func (s CopyStore) Read(ctx context.Context, digest string) (*Unpacked, error) {
	first, err := s.piece(ctx, digest, 0)
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(first.Annotations[piecesAnnotation])
	if err != nil || count < 1 || count > maxPieces {
		return nil, fmt.Errorf("Secret %s/%s is damaged: its annotation %s is %q: %s", s.Namespace, first.Name, piecesAnnotation, first.Annotations[piecesAnnotation], remedy)
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
		return nil, fmt.Errorf("the copy that begins with Secret %s/%s is damaged: %w: %s", s.Namespace, first.Name, err, remedy)
	}
	return unpacked, nil
}

// remedy is what to do about a copy that can't be read.
const remedy = "apply the version again from its source, which writes its copy"

// piece reads a Secret of a copy.
func (s CopyStore) piece(ctx context.Context, digest string, piece int) (*corev1.Secret, error) {
	name := s.name(digest, piece)
	found, err := s.Cluster.Client.CoreV1().Secrets(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("Secret %s/%s is missing: %s", s.Namespace, name, remedy)
	case err != nil:
		return nil, s.failure("get", err)
	case sumOf(found.Data[secretKey]) != found.Annotations[sumAnnotation]:
		return nil, fmt.Errorf("Secret %s/%s is damaged: %s", s.Namespace, name, remedy)
	}
	return found, nil
}
