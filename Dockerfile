# The operator's image. `build/site` holds the package and its dependencies, prepared on the host:
#
#     python3 hack/images --site        (pip with --target, for Python 3.13 on Linux)
#
# so that the image has no pip, no compiler and no cache, and building it needs no network.
FROM python:3.13-slim

COPY build/site /app/site

ENV PYTHONPATH=/app/site \
    PYTHONUNBUFFERED=1

USER 65532:65532
WORKDIR /

ENTRYPOINT ["python3", "-m", "taskfold"]
