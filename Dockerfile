# A treadle worker. Packages that your functions import must be in the image: build one FROM this one.
FROM python:3.12.12-slim-bookworm AS build
RUN pip install --no-cache-dir uv==0.13.8
WORKDIR /src
COPY . .
ENV UV_PROJECT_ENVIRONMENT=/opt/treadle UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
RUN uv sync --frozen --no-dev --no-editable --no-cache

FROM python:3.12.12-slim-bookworm
RUN useradd --uid 10001 --create-home treadle
COPY --from=build /opt/treadle /opt/treadle
ENV PATH=/opt/treadle/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/treadle
ENTRYPOINT ["treadle"]
CMD ["worker"]
