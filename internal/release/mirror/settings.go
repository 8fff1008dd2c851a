package mirror

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/verify"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/oci"
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
func (m *Mirror) Settings() ([]File, error) {
	releases := slices.DeleteFunc(slices.Clone(m.releases), func(r *Release) bool { return r.image == (reference{}) })
	if m.isFolder || len(releases) == 0 {
		return nil, nil
	}
	address := registryAddress{prefix: m.to}
	if m.options.Source.Insecure {
		client, err := oci.HTTPClient(true)
		if err != nil {
			return nil, err
		}
		host, _, _ := strings.Cut(m.to, "/")
		response, err := client.Get("https://" + host + "/v2/")
		if err == nil {
			response.Body.Close()
		}
		address.isPlainHTTP, address.isUnverified = err != nil, err == nil
	}
	return settingsFiles(releases, address)
}

// settingsFiles returns the settings for clusters that use the mirrored releases.
func settingsFiles(releases []*Release, destination registryAddress) ([]File, error) {
	byDigest, byTag, registries := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var pairs []string
	var saved []any
	var files []File
	for _, release := range releases {
		for _, image := range release.references() {
			repositories := byDigest
			if image.isTag() {
				repositories = byTag
			}
			repositories[image.repository] = true
			registries[image.registry()] = registries[image.registry()] || image.isTag()
		}
		if pair := release.image.registry() + "=" + destination.prefix; !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
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
	mirrorName := "mirror-" + strings.NewReplacer("/", "-", "_", "-").Replace(releases[0].image.path())
	sets, err := documents(slices.Concat(
		mirrorSet("ImageDigestMirrorSet", "imageDigestMirrors", mirrorName, destination.prefix, byDigest),
		mirrorSet("ImageTagMirrorSet", "imageTagMirrors", mirrorName, destination.prefix, byTag)))
	if err != nil {
		return nil, err
	}
	files = append(files, File{"mirror-sets.yaml", sets},
		File{"operator.yaml", []byte("image-mirror: " + strings.Join(pairs, ",") + "\n")})
	for _, registry := range slices.Sorted(maps.Keys(registries)) {
		files = append(files, File{"certs.d/" + registry + "/hosts.toml",
			[]byte(hostsTOML(registry, destination, registries[registry]))})
	}
	if len(saved) > 0 {
		text, err := documents(saved)
		if err != nil {
			return nil, err
		}
		files = append(files, File{"signatures.yaml", text})
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

// mirrorSet returns the set of mirrors of repositories, of a kind of OpenShift, which our operator reads, too.
func mirrorSet(kind, field, name, prefix string, repositories map[string]bool) []any {
	var mirrors []any
	for _, repository := range slices.Sorted(maps.Keys(repositories)) {
		_, path, _ := strings.Cut(repository, "/")
		mirrors = append(mirrors, map[string]any{"source": repository, "mirrors": []any{prefix + "/" + path}})
	}
	if len(mirrors) == 0 {
		return nil
	}
	return []any{map[string]any{
		"apiVersion": configv1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name},
		"spec": map[string]any{field: mirrors},
	}}
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
func hostsTOML(registry string, destination registryAddress, hasTags bool) string {
	server, scheme, capabilities, verified := registry, "https", `"pull"`, ""
	if registry == "docker.io" {
		server = "registry-1.docker.io"
	}
	if destination.isPlainHTTP {
		scheme = "http"
	} else if destination.isUnverified {
		verified = "  skip_verify = true\n"
	}
	if hasTags {
		capabilities += `, "resolve"`
	}
	host, path, _ := strings.Cut(destination.prefix, "/")
	return fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [%s]\n  override_path = true\n%s", "https://"+server,
		strings.TrimSuffix(scheme+"://"+host+"/v2/"+path, "/"), capabilities, verified)
}
