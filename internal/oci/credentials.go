package oci

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// A keychain finds credentials in the files of docker, podman and Kubernetes, and asks the credential helpers that the
// files name. Unlike the keychain of the registry library, it reads all the files, and knows entries for a part of a
// registry, such as registry.example/shop, and for several registries, such as *.registry.example.
type keychain struct{}

// Resolve returns the credentials for a repository, or anonymous access.
func (keychain) Resolve(repository authn.Resource) (authn.Authenticator, error) {
	for _, file := range credentialFiles() {
		found, err := credentialsIn(file, repository)
		if err != nil {
			return nil, fmt.Errorf("credentials in %s: %w", file, WithoutPath(err))
		}
		if found != (types.AuthConfig{}) {
			return authn.FromConfig(authn.AuthConfig{
				Username:      found.Username,
				Password:      found.Password,
				Auth:          found.Auth,
				IdentityToken: found.IdentityToken,
				RegistryToken: found.RegistryToken,
			}), nil
		}
	}
	return authn.Anonymous, nil
}

const podmanFile = "containers/auth.json"

// credentialFiles returns the files in the order of their precedence. REGISTRY_AUTH_FILE replaces all others, as for
// podman.
func credentialFiles() []string {
	if file := os.Getenv("REGISTRY_AUTH_FILE"); file != "" {
		return []string{file}
	}
	home, _ := os.UserHomeDir()
	docker := cmp.Or(os.Getenv("DOCKER_CONFIG"), filepath.Join(home, ".docker"))
	files := []string{
		filepath.Join(docker, "config.json"),
		filepath.Join(docker, ".dockerconfigjson"), // a mounted Secret of Kubernetes
	}
	if runtimeFolder := os.Getenv("XDG_RUNTIME_DIR"); runtimeFolder != "" {
		files = append(files, filepath.Join(runtimeFolder, podmanFile))
	} else {
		files = append(files, fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid()))
	}
	settings := cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config"))
	return append(files, filepath.Join(settings, podmanFile))
}

// credentialsIn returns the credentials for a repository in a file, or empty ones.
func credentialsIn(path string, repository authn.Resource) (types.AuthConfig, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return types.AuthConfig{}, nil
	}
	if err != nil {
		return types.AuthConfig{}, err
	}
	defer file.Close()
	settings, err := config.LoadFromReader(file)
	if err != nil {
		return types.AuthConfig{}, err
	}
	found := closestEntry(settings, repository.String())
	if found == (types.AuthConfig{}) {
		registry := repository.RegistryStr()
		if registry == name.DefaultRegistry {
			registry = authn.DefaultAuthKey
		}
		found, err = settings.GetAuthConfig(registry) // asks a credential helper, if there is one
	}
	found.ServerAddress = ""
	return found, err
}

// closestEntry returns the entry of the longest part of a repository's name.
func closestEntry(settings *configfile.ConfigFile, repository string) types.AuthConfig {
	entries := map[string]types.AuthConfig{}
	for key, entry := range settings.AuthConfigs {
		if _, rest, hasScheme := strings.Cut(key, "://"); hasScheme {
			key = rest
		}
		key = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(key, "/"), "/v1"), "/v2")
		if key == "docker.io" || strings.HasPrefix(key, "docker.io/") {
			key = "index." + key
		}
		entry.ServerAddress = ""
		if entry != (types.AuthConfig{}) { // an empty one stands for a credential helper
			entries[key] = entry
		}
	}
	for part := repository; part != "."; part = path.Dir(part) {
		if entry, exists := entries[part]; exists {
			return entry
		}
	}
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(entries))) { // those with a longer path first
		if matchesWildcard(key, repository) {
			return entries[key]
		}
	}
	return types.AuthConfig{}
}

// matchesWildcard reports whether a key such as *.registry.example/shop is for a repository. As in Kubernetes, a *
// stands for one part of the registry's name.
func matchesWildcard(key, repository string) bool {
	keyHost, keyPath, _ := strings.Cut(key, "/")
	host, rest, _ := strings.Cut(repository, "/")
	matches, err := path.Match(strings.ReplaceAll(keyHost, ".", "/"), strings.ReplaceAll(host, ".", "/"))
	return err == nil && matches && strings.HasPrefix(rest+"/", strings.TrimPrefix(keyPath+"/", "/"))
}
