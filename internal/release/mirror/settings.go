package mirror

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/verify"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// operatorNamespace is the namespace in which our operator reads signatures. The cluster-version operator reads them in
// openshift-config-managed.
const operatorNamespace = "runlevel-system"

// A File is a file of settings with which clusters find mirrored images and their signatures.
type File struct {
	Name string
	Text []byte
}

// A registryAddress is where a destination is served.
type registryAddress struct {
	prefix       string // registry.internal:5000/mirror
	isPlainHTTP  bool
	isUnverified bool // its certificate is accepted without a known authority
}

// Settings returns files for clusters that use the copies. A folder has none.
func (m *Mirror) Settings(ctx context.Context) ([]File, error) {
	if m.isFolder {
		return nil, nil
	}
	address, err := m.address(ctx)
	if err != nil {
		return nil, err
	}
	return settingsFiles(m.releases, address)
}

// address finds out how the destination is served. An --insecure for the source doesn't weaken it.
func (m *Mirror) address(ctx context.Context) (found registryAddress, failed error) {
	verified := registryAddress{prefix: m.to}
	if !m.options.Source.Insecure {
		return verified, nil
	}
	host, _, _ := strings.Cut(m.to, "/")
	for _, address := range []registryAddress{
		verified, {prefix: m.to, isUnverified: true}, {prefix: m.to, isPlainHTTP: true},
	} {
		var refused *tls.CertificateVerificationError
		if address.isUnverified && !errors.As(failed, &refused) {
			continue // a network that fails is no reason for skip_verify
		}
		client, err := oci.HTTPClient(address != verified)
		if err != nil {
			return verified, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.scheme()+"://"+host+"/v2/", nil)
		if err != nil {
			return verified, err
		}
		response, err := client.Do(request)
		if err == nil {
			return address, response.Body.Close()
		}
		failed = err
	}
	return verified, fmt.Errorf("settings for %s: %w", host, printable.RequestError(failed))
}

func (r registryAddress) scheme() string {
	if r.isPlainHTTP {
		return "http"
	}
	return "https"
}

// settingsFiles returns the settings for clusters that use the mirrored releases. They name registries and not
// repositories, so that those of one release are also those of the next.
func settingsFiles(releases []*Release, destination registryAddress) ([]File, error) {
	var pairs []string
	var sets, saved []any
	var files []File
	var registries []string
	for _, image := range references(releases) {
		registries = append(registries, image.registry())
	}
	if len(registries) == 0 {
		return nil, nil
	}
	slices.Sort(registries)
	for _, registry := range slices.Compact(registries) {
		pairs = append(pairs, registry+"="+destination.prefix)
		sets = append(sets, mirrorSet("ImageDigestMirrorSet", "imageDigestMirrors", registry, destination.prefix),
			mirrorSet("ImageTagMirrorSet", "imageTagMirrors", registry, destination.prefix))
		files = append(files, File{"certs.d/" + registry + "/hosts.toml", []byte(hostsTOML(registry, destination))})
	}
	for _, release := range releases {
		if len(release.signatures) == 0 {
			continue
		}
		configMap, err := verify.GetSignaturesAsConfigmap(release.image.identifier, release.signatures)
		if err != nil {
			return nil, err
		}
		configMap.Namespace = operatorNamespace
		saved = append(saved, configMap)
		files = append(files, signatureFiles(release)...)
	}
	files = append(files, File{"operator.yaml", []byte("image-mirror: " + strings.Join(pairs, ",") + "\n")})
	for name, objects := range map[string][]any{"mirror-sets.yaml": sets, "signatures.yaml": saved} {
		text, err := documents(objects)
		if err != nil {
			return nil, err
		}
		if len(objects) > 0 {
			files = append(files, File{name, text})
		}
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return files, nil
}

// signatureFiles returns the OpenPGP signatures of a release as the files of a signature store.
func signatureFiles(release *Release) (files []File) {
	for i, text := range release.signatures {
		folder := strings.Replace(release.image.identifier, ":", "=", 1)
		files = append(files, File{fmt.Sprintf("%s/%s/signature-%d", SignaturesFolder, folder, i+1), text})
	}
	return files
}

// mirrorSet returns the mirror of a registry, as a kind of OpenShift, which our operator reads, too.
func mirrorSet(kind, field, registry, prefix string) any {
	return map[string]any{
		"apiVersion": configv1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"name": "mirror-" +
			strings.NewReplacer(":", "-", "[", "", "]", "").Replace(registry)},
		"spec": map[string]any{field: []any{map[string]any{"source": registry, "mirrors": []any{prefix}}}},
	}
}

// documents returns objects as documents of YAML.
func documents(objects []any) ([]byte, error) {
	var texts [][]byte
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return bytes.Join(texts, []byte("---\n")), nil
}

// hostsTOML returns the configuration with which containerd pulls the images of a registry from the destination.
func hostsTOML(registry string, destination registryAddress) string {
	server, verified := registry, ""
	if registry == "docker.io" {
		server = "registry-1.docker.io"
	}
	if destination.isUnverified {
		verified = "  skip_verify = true\n"
	}
	host, path, _ := strings.Cut(destination.prefix, "/")
	address := strings.TrimSuffix(destination.scheme()+"://"+host+"/v2/"+path, "/")
	return fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n  override_path = true\n%s",
		"https://"+server, address, verified)
}
