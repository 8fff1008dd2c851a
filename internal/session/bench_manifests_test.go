package session_test

// The manifests of an estate. ESTATE stands for its name, NAMESPACE, NAME and REVISION for those of
// an object.

// estateDefinition is the definition of the kind that it brings along.
const estateDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.ESTATE.example.com}
spec:
  group: ESTATE.example.com
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              colour: {type: string, enum: [red, green, blue]}
              size: {type: integer, minimum: 1}
              parts: {type: array, items: {type: object, properties: {name: {type: string}, count: {type: integer}}}}
          status:
            type: object
            properties:
              conditions: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// estateHead begins each of its other objects.
const estateHead = `
metadata:
  name: NAME
  namespace: NAMESPACE
  labels: {app.kubernetes.io/part-of: estate, app.kubernetes.io/managed-by: NAMESPACE}
  annotations:
    include.release.openshift.io/self-managed-high-availability: "true"
    example.com/description: one or two sentences on the purpose, as in most manifests of some releases
    example.com/revision: REVISION
`

// estateKinds are those.
var estateKinds = []string{
	`
apiVersion: v1
kind: ConfigMap
data:
  config.yaml: |
    listen: 0.0.0.0:8443
    upstream: https://NAME.NAMESPACE.svc:8443
    features: {retries: 3, timeout: 30s, cache: {size: 128Mi, expiry: 10m}}
    tls: {minVersion: VersionTLS12, ciphers: [TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256]}
`, `
apiVersion: v1
kind: ServiceAccount
`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
rules:
- {apiGroups: [""], resources: [configmaps, secrets, services], verbs: [get, list, watch, update]}
- {apiGroups: [apps], resources: [deployments], resourceNames: [NAME], verbs: [get, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}
subjects:
- {kind: ServiceAccount, name: NAME, namespace: NAMESPACE}
`, `
apiVersion: v1
kind: Service
spec:
  selector: {app: NAME}
  ports:
  - {name: https, port: 8443, targetPort: https}
  - {name: metrics, port: 9443, targetPort: metrics}
`, `
apiVersion: v1
kind: Secret
type: Opaque
stringData: {user: NAME, password: of-NAMESPACE}
`, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
spec:
  podSelector: {matchLabels: {app: NAME}}
  policyTypes: [Ingress]
  ingress:
  - from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}]
    ports: [{port: 8443, protocol: TCP}]
`, `
apiVersion: policy/v1
kind: PodDisruptionBudget
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: NAME}}
`, `
apiVersion: ESTATE.example.com/v1
kind: Widget
spec:
  colour: red
  size: 3
  parts: [{name: NAME, count: 1}, {name: wheel, count: 4}]
`, `
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 0
  selector: {matchLabels: {app: NAME}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      serviceAccountName: NAME
      priorityClassName: system-cluster-critical
      containers:
      - name: operator
        image: registry.example/NAME@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
        args: [start, --config=/etc/config/config.yaml, -v=2]
        ports: [{name: https, containerPort: 8443}, {name: metrics, containerPort: 9443}]
        env:
        - {name: WHERE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: OPERATOR, value: NAME}
        resources: {requests: {cpu: 10m, memory: 50Mi}}
        livenessProbe: {httpGet: {path: /healthz, port: https, scheme: HTTPS}, periodSeconds: 10}
        readinessProbe: {httpGet: {path: /readyz, port: https, scheme: HTTPS}, periodSeconds: 10}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: config, mountPath: /etc/config}]
      volumes: [{name: config, configMap: {name: NAME}}]
`}
