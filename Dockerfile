# histolumen on a CPU, with slides, figures and the viewer:
#   docker build -t histolumen .
#   docker run --rm -v "$PWD:/data" histolumen data check my-images/manifest.csv
# The CPU build of torch is on the wheel index that its site names under "Get started":
#   docker build -t histolumen --build-arg PIP_EXTRA_INDEX_URL=ADDRESS .
FROM python:3.11-slim-bookworm AS build
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1
WORKDIR /histolumen
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY scripts/install.sh scripts/
COPY src src
RUN PACKAGE='.[slides,study,view]' bash scripts/install.sh /opt/histolumen

FROM python:3.11-slim-bookworm
COPY --from=build /opt/histolumen /opt/histolumen
ENV PATH=/opt/histolumen/bin:$PATH
RUN useradd --create-home --uid 1000 histolumen
USER histolumen
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["histolumen"]
CMD ["--help"]
