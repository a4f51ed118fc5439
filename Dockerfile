# Counterpoint in a container.
#
#   docker build --target cpu -t counterpoint .
#   docker run --rm counterpoint demo
#
#   docker build --target cuda -t counterpoint:cuda .
#   docker run --rm --gpus all -v "$PWD:/here" -v counterpoint:/cache counterpoint:cuda \
#       eval -m open_clip:ViT-B-32-quickgelu/openai -b sugarcrepe --data /here/data
#
# Both take the versions of constraints.txt. torch of the Python package index brings its CUDA
# libraries; for a smaller CPU image, name an index that has torch without them
# (pytorch.org says which): --build-arg CPU_INDEX=URL. Other extras: --build-arg EXTRAS=models,vlm.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 COUNTERPOINT_CACHE=/cache
WORKDIR /counterpoint
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
ARG EXTRAS="models"
RUN useradd --create-home --uid 1000 counterpoint && install -d -o counterpoint /here /cache

FROM base AS cpu
ARG CPU_INDEX
RUN pip install -c constraints.txt ${CPU_INDEX:+--extra-index-url "$CPU_INDEX"} ".[$EXTRAS]"
USER counterpoint
WORKDIR /here
ENTRYPOINT ["counterpoint"]
CMD ["--help"]

FROM base AS cuda
# The driver is the host's; gcc is for `compile=true`.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && \
    rm -rf /var/lib/apt/lists/*
RUN pip install -c constraints.txt ".[$EXTRAS]"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER counterpoint
WORKDIR /here
ENTRYPOINT ["counterpoint"]
CMD ["--help"]
