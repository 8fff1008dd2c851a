module github.com/runlevel/runlevel/tools/release

go 1.26.0

require golang.org/x/mod v0.41.0

require github.com/runlevel/runlevel v0.0.0

replace github.com/runlevel/runlevel => ../..
