package oci

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// passwordFor returns the password that the keychain finds for a repository.
func passwordFor(t *testing.T, repository string) (string, error) {
	t.Helper()
	parsed, err := name.NewRepository(repository)
	if err != nil {
		t.Fatal(err)
	}
	found, err := keychain{}.Resolve(parsed)
	if err != nil {
		return "", err
	}
	settings, err := authn.Authorization(t.Context(), found)
	if err != nil {
		return "", err
	}
	return settings.Password, nil
}

func entry(registry, password string) string {
	return `{"auths": {"` + registry + `": {"username": "me", "password": "` + password + `"}}}`
}

func TestWhereCredentialsAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		files      map[string]string
		variables  map[string]string
		repository string
		want       string
	}{
		"docker": {files: map[string]string{"home/.docker/config.json": entry("r.example", "a")}, want: "a"},
		"docker elsewhere": {
			files: map[string]string{
				"docker/config.json": entry("r.example", "a"), "home/.docker/config.json": entry("r.example", "b"),
			},
			variables: map[string]string{"DOCKER_CONFIG": "docker"},
			want:      "a",
		},
		"a mounted Secret": {
			files:     map[string]string{"secret/.dockerconfigjson": entry("https://r.example/v1/", "a")},
			variables: map[string]string{"DOCKER_CONFIG": "secret"},
			want:      "a",
		},
		"podman at run time": {
			files:     map[string]string{"run/containers/auth.json": entry("r.example", "a")},
			variables: map[string]string{"XDG_RUNTIME_DIR": "run"},
			want:      "a",
		},
		"podman beside docker's of another registry": {
			files: map[string]string{
				"home/.docker/config.json":          entry("other.example", "b"),
				"home/.config/containers/auth.json": entry("r.example", "a"),
			},
			want: "a",
		},
		"a named file instead of all others": {
			files: map[string]string{
				"named.json": entry("r.example", "a"), "home/.docker/config.json": entry("r.example", "b"),
			},
			variables: map[string]string{"REGISTRY_AUTH_FILE": "named.json"},
			want:      "a",
		},
		"a part of a registry": {
			files: map[string]string{"home/.docker/config.json": `{"auths": {
				"r.example": {"username": "me", "password": "b"},
				"r.example/shop": {"username": "me", "password": "a"},
				"r.example/shop/web2": {"username": "me", "password": "c"}}}`},
			want: "a",
		},
		"several registries": {
			files: map[string]string{"home/.docker/config.json": entry("*.example", "a")}, want: "a",
		},
		"a wildcard is one part of a name": {
			files:      map[string]string{"home/.docker/config.json": entry("*.example", "a")},
			repository: "other.r.example/shop/web",
		},
		"a wildcard is not all registries": {
			files: map[string]string{"home/.docker/config.json": entry("*", "a")},
		},
		"a wildcard with a path": {
			files: map[string]string{"home/.docker/config.json": `{"auths": {
				"*.example": {"username": "me", "password": "b"},
				"*.example/shop": {"username": "me", "password": "a"},
				"*.example/shop/we": {"username": "me", "password": "c"}}}`},
			want: "a",
		},
		"Docker Hub, as podman names it": {
			files:      map[string]string{"home/.docker/config.json": entry("docker.io", "a")},
			repository: "docker.io/library/web",
			want:       "a",
		},
		"a helper": {
			files: map[string]string{
				"home/.docker/config.json":   `{"auths": {"r.example": {}}, "credHelpers": {"r.example": "test"}}`,
				"bin/docker-credential-test": "#!/bin/sh\necho '{\"Username\": \"me\", \"Secret\": \"a\"}'\n",
			},
			want: "a",
		},
		"nowhere": {},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for _, variable := range []string{
				"DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME",
			} {
				t.Setenv(variable, "")
			}
			t.Setenv("HOME", filepath.Join(folder, "home"))
			t.Setenv("PATH", filepath.Join(folder, "bin")+":"+os.Getenv("PATH"))
			for variable, value := range test.variables {
				t.Setenv(variable, filepath.Join(folder, value))
			}
			for path, content := range test.files {
				full := filepath.Join(folder, path)
				if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(full, []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			repository := test.repository
			if repository == "" {
				repository = "r.example/shop/web"
			}
			if got, err := passwordFor(t, repository); err != nil || got != test.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestABrokenFileOfCredentialsIsNamedWithoutItsContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(file, []byte(`{"auths": {"r.example": "SECRET"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REGISTRY_AUTH_FILE", file)
	_, err := passwordFor(t, "r.example/shop/web")
	if err == nil || !strings.Contains(err.Error(), "credentials in "+file) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("error is %v", err)
	}
}
