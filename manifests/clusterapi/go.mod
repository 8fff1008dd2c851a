// The definitions of Cluster API's kinds are among the files of this module, and not in that of its types. The test of
// the manifests copies them. No package is imported, so "go mod tidy" would drop the requirement.
module github.com/runlevel/runlevel/manifests/clusterapi

go 1.26.0

require sigs.k8s.io/cluster-api v1.14.2
