package extensionconfig

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/patch"
)

// authorityKey is the key of the certificate authority of an extension in a Secret.
const authorityKey = "ca.crt"

// unusable is the error of a Secret that has no certificate authority for an extension.
func unusable(secret, problem string) error {
	return fmt.Errorf("annotation %s names Secret %s: %s", runtimev1.InjectCAFromSecretAnnotation, secret, problem)
}

// injectCA copies the certificate authority of the Secret that an annotation names into the spec.
func (r *reconciler) injectCA(ctx context.Context, config *runtimev1.ExtensionConfig) error {
	named, isNamed := config.Annotations[runtimev1.InjectCAFromSecretAnnotation]
	if !isNamed {
		return nil
	}
	authority, err := r.readCA(ctx, named)
	if err != nil || bytes.Equal(authority, config.Spec.ClientConfig.CABundle) {
		return err
	}
	changed := config.DeepCopy()
	changed.Spec.ClientConfig.CABundle = authority
	if err := patch.WithLock(ctx, r.cached, changed, config); err != nil {
		return fmt.Errorf("set spec.clientConfig.caBundle of ExtensionConfig %s: %w", config.Name, err)
	}
	*config = *changed // includes the current generation
	return nil
}

func (r *reconciler) readCA(ctx context.Context, named string) ([]byte, error) {
	namespace, name, isWhole := strings.Cut(named, "/")
	if !isWhole || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, unusable(named, "write NAMESPACE/NAME")
	}
	mayRead, err := r.mayRead(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if !mayRead {
		return nil, unusable(named,
			"the controller has no right to read it: create a Role in its namespace that allows to get it, and bind "+
				"it to the controller's service account")
	}
	var secret corev1.Secret
	switch err := r.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret); {
	case apierrors.IsNotFound(err):
		return nil, unusable(named, "the Secret does not exist")
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", named, err)
	case len(secret.Data[authorityKey]) == 0:
		return nil, unusable(named, "it has no "+authorityKey)
	}
	return secret.Data[authorityKey], nil
}

// mayRead checks the permission to read a Secret, which the controller's own role does not grant. A refused read would
// be reported as a missing permission of the controller.
func (r *reconciler) mayRead(ctx context.Context, namespace, name string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb:      "get",
			Resource:  "secrets",
			Namespace: namespace,
			Name:      name,
		},
	}}
	if err := r.cached.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask for the right to read Secret %s/%s: %w", namespace, name, err)
	}
	return review.Status.Allowed, nil
}
