{{/* Name of everything in the release's namespace. */}}
{{- define "taskfold.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of a cluster-scoped object: its kind of use, the namespace, the release; two releases never share one. */}}
{{- define "taskfold.clusterName" -}}
{{- printf "%s.%s.%s" (include "taskfold.fullname" .root) .root.Release.Namespace .use -}}
{{- end -}}

{{- define "taskfold.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Never one under taskfold.dev/: those are the operator's, and the admission policies refuse them. */}}
{{- define "taskfold.labels" -}}
{{ include "taskfold.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "taskfold.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "taskfold.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create is false: name the account that exists in serviceAccount.name" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The user that the API server sees. */}}
{{- define "taskfold.user" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "taskfold.serviceAccountName" .) -}}
{{- end -}}

{{/* Served namespaces, as a JSON list; the release's own for clusterWide, where only some objects need one. */}}
{{- define "taskfold.namespaces" -}}
{{- if and .Values.clusterWide .Values.namespaces -}}
{{- fail "clusterWide=true serves every namespace: leave namespaces empty, or set clusterWide=false" -}}
{{- end -}}
{{- default (list .Release.Namespace) .Values.namespaces | toJson -}}
{{- end -}}

{{/* The folder of a file:// store; empty for every other store. */}}
{{- define "taskfold.storeFolder" -}}
{{- if hasPrefix "file://" .Values.store.url -}}
{{- trimPrefix "file://" .Values.store.url -}}
{{- end -}}
{{- end -}}

{{/* What of store.serverSideEncryption is set, as JSON. */}}
{{- define "taskfold.encryption" -}}
{{- $given := .Values.store.serverSideEncryption -}}
{{- $set := dict -}}
{{- range $name, $value := $given -}}
  {{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}{{ $_ := set $set $name $value }}{{ end -}}
{{- end -}}
{{- if and (or (hasKey $set "kmsKeyId") (hasKey $set "bucketKey")) (not (hasPrefix "aws:kms" (toString $given.type))) -}}
{{- fail "store.serverSideEncryption: kmsKeyId and bucketKey are for the types aws:kms and aws:kms:dsse" -}}
{{- end -}}
{{- toJson $set -}}
{{- end -}}

{{/* Where the store's files lie: "claim", "emptyDir", or "" for a store in a bucket. Refuses contradictions. */}}
{{- define "taskfold.storeVolume" -}}
{{- $store := .Values.store -}}
{{- $folder := include "taskfold.storeFolder" . -}}
{{- if and (include "taskfold.encryption" . | fromJson) (not (hasPrefix "s3://" $store.url)) -}}
{{- fail (printf "store.serverSideEncryption is for an s3:// store, and store.url is %s: leave it empty" $store.url) -}}
{{- end -}}
{{- if not $folder -}}
  {{- if $store.ephemeral -}}
  {{- fail (printf "store.ephemeral=true is for a file:// store; %s outlives the operator's pod anyway" $store.url) -}}
  {{- end -}}
{{- else if $store.ephemeral -}}
  {{- if $store.persistence.existingClaim -}}
  {{- fail "store.ephemeral=true and store.persistence.existingClaim exclude each other: choose one" -}}
  {{- end -}}
  {{- "emptyDir" -}}
{{- else if $store.persistence.enabled -}}
  {{- "claim" -}}
{{- else -}}
  {{- fail (printf "store.url is %s, but store.persistence.enabled is false: results would be lost with the operator's pod. Enable persistence, use an object store (store.url=s3://bucket/prefix), or accept the loss with store.ephemeral=true" $store.url) -}}
{{- end -}}
{{- end -}}

{{/* Refuses replicas that could not take over from each other. */}}
{{- define "taskfold.checkReplicas" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- $volume := include "taskfold.storeVolume" . -}}
{{- $claim := .Values.store.persistence -}}
{{- if not .Values.leaderElection.enabled -}}
{{- fail (printf "replicas is %d, but leaderElection.enabled is false: all of them would work on the same runs. Enable it, or set replicas=1" (int .Values.replicas)) -}}
{{- else if eq $volume "emptyDir" -}}
{{- fail (printf "replicas is %d, but store.ephemeral=true gives each of them a store of its own. Use an object store (store.url=s3://bucket/prefix) or a claim with ReadWriteMany, or set replicas=1" (int .Values.replicas)) -}}
{{- else if and (eq $volume "claim") (not (has "ReadWriteMany" $claim.accessModes)) -}}
{{- fail (printf "replicas is %d, but the claim of the store can be mounted by one node only. Set store.persistence.accessModes={ReadWriteMany} if its StorageClass (or existingClaim) can do that, use an object store (store.url=s3://bucket/prefix), or set replicas=1" (int .Values.replicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "taskfold.claimName" -}}
{{- default (printf "%s-store" (include "taskfold.fullname" .)) .Values.store.persistence.existingClaim -}}
{{- end -}}

{{/* The Service that the API server reaches the operator by, and the Secret with its certificate. */}}
{{- define "taskfold.readingName" -}}
{{- printf "%s-reading" (include "taskfold.fullname" .) -}}
{{- end -}}

{{/* Canaries: pods, Service and policy. */}}
{{- define "taskfold.canaryName" -}}
{{- printf "%s-canary" (include "taskfold.fullname" .) -}}
{{- end -}}

{{- define "taskfold.canarySelector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: canary
{{- end -}}

{{- define "taskfold.canaryLabels" -}}
{{ include "taskfold.canarySelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The sandbox helper, of which the canaries are one use. */}}
{{- define "taskfold.helperImage" -}}
{{- dig "helper" "image" (printf "ghcr.io/taskfold/helper:%s" .Chart.AppVersion) .Values.settings -}}
{{- end -}}

{{/* How restricted networks are made and proven, as JSON: settings.network. */}}
{{- define "taskfold.network" -}}
{{- $network := dict "gateway" .Values.network.gateway -}}
{{- if .Values.network.canary.enabled -}}
{{- $labels := list -}}
{{- range $key, $value := include "taskfold.canarySelector" . | fromYaml }}{{ $labels = append $labels (printf "%s=%s" $key $value) }}{{ end -}}
{{- $canary := dict "namespace" .Release.Namespace "selector" (join "," $labels) "port" .Values.network.canary.port -}}
{{- $_ := set $network "canary" $canary -}}
{{- end -}}
{{- toJson $network -}}
{{- end -}}

{{/* The operator's settings. As JSON, which is YAML: toYaml writes large whole numbers as 4.294967296e+09. */}}
{{- define "taskfold.settings" -}}
{{- $store := dict "url" .Values.store.url "ephemeral" .Values.store.ephemeral -}}
{{- with .Values.store.options }}{{ $_ := set $store "options" . }}{{ end -}}
{{- with include "taskfold.encryption" . | fromJson }}{{ $_ := set $store "serverSideEncryption" . }}{{ end -}}
{{- with .Values.store.retentionSeconds }}{{ $_ := set $store "retentionSeconds" . }}{{ end -}}
{{- $derived := dict
  "clusterName" .Values.clusterName
  "namespaces" (ternary list (include "taskfold.namespaces" . | fromJsonArray) .Values.clusterWide)
  "store" $store
  "leaderElection" (merge (dict "leaseName" (include "taskfold.fullname" .)) .Values.leaderElection)
  "healthPort" .Values.healthPort
  "network" (include "taskfold.network" . | fromJson)
  "reading" (pick .Values.reading "enabled" "port" "streams" "presignedSeconds")
-}}
{{- mustMergeOverwrite (deepCopy .Values.settings) $derived | mustToPrettyJson -}}
{{- end -}}

{{/* What the operator may do in a namespace that it serves: what its code calls, nothing else (tests/chart/test_rbac.py). */}}
{{- define "taskfold.rules" -}}
- apiGroups: [taskfold.dev]
  resources: [taskruns]
  verbs: [get, list, watch, delete]
- apiGroups: [taskfold.dev]
  resources: [verifierruns]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [taskfold.dev]
  resources: [taskruns/status, verifierruns/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
# get for the WebSocket's handshake, create since Kubernetes asks for it too.
- apiGroups: [""]
  resources: [pods/exec]
  verbs: [get, create]
# A container that ends with a long phase of the sandbox, so that nothing need be asked meanwhile.
- apiGroups: [""]
  resources: [pods/ephemeralcontainers]
  verbs: [patch]
# By name, as a run names them: never listed, never watched.
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if .Values.network.canary.enabled }}
# Restricted networks: a policy of the sandbox's own, and for an allowlist a gateway's Service, policy and log. Policies of
# others are watched, because they add up.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- end -}}
