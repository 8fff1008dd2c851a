package lint

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// checkPullSecret looks for Secrets with which the kubelet can't pull the images of pods: those of other types, those
// without a password, and those that no longer have the registry.
func checkPullSecret(s *subject, r *reporter) {
	isReported := map[*manifest]bool{} // pods have one finding, although each of their containers has an image
	for _, c := range s.containers() {
		by, field := c.pods.by, append(slices.Clone(c.pods.path), "imagePullSecrets")
		if isReported[by] {
			continue
		}
		for _, reference := range s.pullSecrets(s.index, c.pods) {
			secret := s.present(kinds.NewID(kinds.Secret, by.id.Namespace, reference.Name), by)
			if _, why := secret.registries(); why != "" {
				r.field(by, field, "the kubelet can't log in to a registry with %s (%s), which %s", secret.id,
					secret.place(), why)
				isReported[by] = true
			}
		}
		if !isReported[by] && c.before != nil && c.isSameRepository() && s.hasLogin(s.previous, c.before) &&
			!s.hasLogin(s.index, c) {
			r.field(by, field, "no pull secret of the pod has the registry of %s, and in the previous payload one had "+
				"that of the image: add it, or nodes pull the image only if it needs no password", c.Image)
			isReported[by] = true
		}
	}
}

// isSameRepository reports whether an image has the name of the one before, regardless of its registry and version.
func (c *container) isSameRepository() bool {
	return path.Base(parseImage(c.Image).repository) == path.Base(parseImage(c.before.Image).repository)
}

// registries returns the registries for which a pull secret has a password, and the reason why it has none; "" if there
// is no such Secret.
func (m *manifest) registries() (found []string, why string) {
	const wanted = corev1.SecretTypeDockerConfigJson
	if m == nil {
		return nil, ""
	}
	kind := corev1.SecretType(cmp.Or(m.text("type"), string(corev1.SecretTypeOpaque)))
	if kind != wanted && kind != corev1.SecretTypeDockercfg {
		return nil, "is of the type " + string(kind) + ": give it the type " + string(wanted)
	}
	var config struct {
		Auths map[string]struct{ Auth string }
	}
	text, _ := m.value(corev1.DockerConfigJsonKey)
	if json.Unmarshal([]byte(text), &config) != nil {
		return nil, ""
	}
	for _, registry := range sortedKeys(config.Auths) {
		auth, err := base64.StdEncoding.DecodeString(config.Auths[registry].Auth)
		if err != nil || len(auth) > 0 && !strings.Contains(string(auth), ":") {
			return nil, "has an auth for " + registry + " that is not base64 of USER:PASSWORD: encode both"
		}
		found = append(found, strings.TrimPrefix(registry, "https://"))
	}
	return found, ""
}

// pullSecrets returns the references of pods and of their account to pull secrets.
func (s *subject) pullSecrets(ix *index, pods podSet) []corev1.LocalObjectReference {
	spec := pods.typed()
	id := kinds.NewID(kinds.ServiceAccount, pods.by.id.Namespace, cmp.Or(spec.ServiceAccountName, "default"))
	if m := s.in(ix, id, pods.by); m != nil && len(spec.ImagePullSecrets) == 0 {
		if account := convert[corev1.ServiceAccount](m.Object().Object); account != nil {
			return account.ImagePullSecrets
		}
	}
	return spec.ImagePullSecrets
}

// hasLogin reports whether a pull secret has the registry of a container's image, or may have it.
func (s *subject) hasLogin(ix *index, c *container) bool {
	registry, _, _ := strings.Cut(c.Image, "/")
	return slices.ContainsFunc(s.pullSecrets(ix, c.pods), func(reference corev1.LocalObjectReference) bool {
		secret := s.in(ix, kinds.NewID(kinds.Secret, c.pods.by.id.Namespace, reference.Name), c.pods.by)
		registries, _ := secret.registries()
		return secret == nil || slices.ContainsFunc(registries, func(known string) bool {
			return strings.HasPrefix(known+"/", registry+"/") || strings.HasPrefix(known, "*")
		})
	})
}
